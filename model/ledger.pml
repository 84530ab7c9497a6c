/*
 * What PostgreSQL holds: positions, batches, staging, target, row locks; and the promise, checked at every COMMIT.
 *
 * A transaction is a sequence of steps. Its writes become visible in its last step (COMMIT); until then others see the
 * old values and its locks. Time is not modelled: every time-out may happen at any moment.
 */

/*
 * -DRESET and -DACCEPT are two more searches, both with -DRELOAD: run 1 reloads a span of partition 0, and an operator
 * changes positions. With RESET the log is compacted and the position put back; with ACCEPT the topic is created again
 * and accepted. The rest is as in the first search, but partition 1 has nothing to read, which keeps the states few.
 */
#ifdef RESET
#define RELOAD
#endif
#ifdef ACCEPT
#define RELOAD
#define IS_ACCEPTED_LATER true
#else
#define IS_ACCEPTED_LATER false
#endif

#define RUNS       2
#define ATTEMPTS   2 /* of each run */
#define PARTITIONS 2
#define NOBODY     0 /* locks and claims hold a process's number + 1 */
#define NONE       0 /* batches are named by their number + 1 */

/* Drivers: processes 0 and 1 make the attempts of runs 0 and 1 one after another; 2 makes the overlapping attempt. */
#define DRIVERS    3

/* Batches: run r has numbers 2r and 2r + 1, because an attempt records at most one. */
#define BATCHES    4
#define UNUSED     0
#define PLANNED    1
#define COMMITTED  2
#define SUPERSEDED 3
byte b_state[BATCHES];
byte b_claim[BATCHES];      /* who claimed last: the fencing token */
byte b_topic_id[BATCHES];   /* frozen with the plan */
byte b_start[8];            /* ranges [start, end) by batch and partition */
byte b_end[8];
#ifdef RELOAD
byte b_before[BATCHES];     /* of partition 0: committed_before, loaded_to and line of the range */
byte b_loaded_to[BATCHES];
byte b_line[BATCHES];
#endif

/* Positions. Topic ids: the log's incarnations are 1 and 2; 0 before the first plan (-DFIRST_PLAN begins there). */
#ifdef RELOAD               /* An earlier batch has loaded the first record of each partition: [0, 1) in line 0. */
byte position[PARTITIONS] = 1;
byte loaded_to = 1;         /* of partition 0 */
byte line;
byte loaded_before;         /* bookkeeping: loaded_to of the first incarnation, once the second was accepted */
#else
byte position[PARTITIONS];  /* committed offset */
#endif
#ifdef FIRST_PLAN
byte position_topic_id;
#else
byte position_topic_id = 1;
#endif

/* Rows of the target: a bit for each record (incarnation, partition, offset); two offsets a partition. */
#ifdef RELOAD
byte target = 5;
#else
byte target;
#endif
#define ROWS(id, p, start, end) ((((1 << (end)) - 1) - ((1 << (start)) - 1)) << (((id) - 1) * 4 + (p) * 2))

/* Staging tables. A task attempt is in them once it has committed its COPY. */
byte staged_by_winner[8];   /* by table and task: the topic id that was read; 0: no rows */
byte staged_by_loser[8];    /* the same for a task attempt that Spark repeated or doubled and did not take */

#ifdef RELOAD
bool staged_lacks_first[8]; /* the log no longer held the first record when the task read */
#define LACKS_FIRST(i) staged_lacks_first[i]
#else
#define LACKS_FIRST(i) false
#endif

/* Row locks: who has them. */
byte pipeline_lock;
byte batch_lock[BATCHES];
byte positions_lock;

/* Open transactions of plans and publishes. */
bool in_transaction[DRIVERS];
byte inserted[DRIVERS];     /* rows that it has inserted, as in target */
bool twice[DRIVERS];        /* it has inserted a row twice */
#ifdef RELOAD
byte deleted[DRIVERS];      /* rows that it has deleted, as in target */
#define DELETED(who) deleted[who]
#else
#define DELETED(who) 0
#endif

/* A COMMIT whose answer its client will not get. */
#define NO_COMMIT 0
#define REACHED   1         /* the server has got COMMIT and will do it */
#define CUT       2         /* the connection broke before: the server will roll back */
byte in_doubt[DRIVERS];

byte attempts[RUNS];        /* begun so far; all of them once the run has succeeded */
bool is_alive[DRIVERS];
byte works_on[DRIVERS];     /* the batch that it loads */

/* Faults, besides re-creating the topic. */
#ifndef MAX_FAULTS
#define MAX_FAULTS 2
#endif
byte faults;                /* deaths of attempts, crashes of PostgreSQL, answers to COMMIT that are lost */
bool has_zombie;            /* an attempt goes on although it was given up: once in all */

#ifdef RELOAD
bool is_changed;            /* a position was changed: it took a batch out of the way of its attempt */
#define IS_CHANGED   is_changed
#ifdef RESET
#define IS_COMPACTED is_compacted
#else
#define IS_COMPACTED false
#endif
#define REPLACED_TO  ((LOADED_TO_BOUND(MINE)) < END(MINE, 0) -> LOADED_TO_BOUND(MINE) : END(MINE, 0))
#define LOADED_TO_BOUND(batch) (UP_TO_LOADED -> LOADED_TO(batch) : BEFORE(batch, 0))
#else
#define IS_CHANGED   false
#define IS_COMPACTED false
#endif

byte batch_left;

#define ME              (_pid + 1)
#define STATE(batch)    b_state[(batch) - 1]
#define CLAIM(batch)    b_claim[(batch) - 1]
#define TOPIC_ID(batch) b_topic_id[(batch) - 1]
#define START(batch, p) b_start[((batch) - 1) * PARTITIONS + (p)]
#define END(batch, p)   b_end[((batch) - 1) * PARTITIONS + (p)]
#define READS(batch, p) (START(batch, p) < END(batch, p))
#ifdef RELOAD
#define BEFORE(batch, p) ((p) == 0 -> b_before[(batch) - 1] : START(batch, p))
#define LOADED_TO(batch) b_loaded_to[(batch) - 1]
#define LINE(batch)      b_line[(batch) - 1]
#define LINE_NOW         line
#else
#define BEFORE(batch, p) START(batch, p)
#define LINE(batch)      0
#define LINE_NOW         0
#endif
#define AFTER(batch, p)  (END(batch, p) > BEFORE(batch, p) -> END(batch, p) : BEFORE(batch, p))
#define MOVES(batch, p)  (READS(batch, p) && AFTER(batch, p) > BEFORE(batch, p))

#define FIRST_OF(r)   ((r) * 2 + 1)
#define SECOND_OF(r)  ((r) * 2 + 2)
#define NEWEST_OF(r) \
    (STATE(SECOND_OF(r)) != UNUSED -> SECOND_OF(r) : (STATE(FIRST_OF(r)) != UNUSED -> FIRST_OF(r) : NONE))
#define COMMITTED_OF(r) ((STATE(FIRST_OF(r)) == COMMITTED) + (STATE(SECOND_OF(r)) == COMMITTED))

#define OUTSTANDING \
    (STATE(1) == PLANNED -> 1 : (STATE(2) == PLANNED -> 2 : \
    (STATE(3) == PLANNED -> 3 : (STATE(4) == PLANNED -> 4 : NONE))))
#define PLANNED_BATCHES \
    ((STATE(1) == PLANNED) + (STATE(2) == PLANNED) + (STATE(3) == PLANNED) + (STATE(4) == PLANNED))

#define LIVES(a, batch)        (is_alive[a] && works_on[a] == (batch))
#define HAS_LIVE_HOLDER(batch) (LIVES(0, batch) || LIVES(1, batch) || LIVES(2, batch))
#define IS_WORKED_ON(batch)    (works_on[0] == (batch) || works_on[1] == (batch) || works_on[2] == (batch))

/* Unique indexes, checked by an insert that supersedes `replaced`. */
#define IS_PLANNED_BESIDE(batch, replaced) (STATE(batch) == PLANNED && (replaced) != (batch))
#define ANY_PLANNED_BESIDE(replaced) \
    (IS_PLANNED_BESIDE(1, replaced) || IS_PLANNED_BESIDE(2, replaced) || \
     IS_PLANNED_BESIDE(3, replaced) || IS_PLANNED_BESIDE(4, replaced))
#define STANDS_BESIDE(batch, replaced) \
    ((STATE(batch) == PLANNED || STATE(batch) == COMMITTED) && (replaced) != (batch))
#define ANY_STANDS_BESIDE(r, replaced) \
    (STANDS_BESIDE(FIRST_OF(r), replaced) || STANDS_BESIDE(SECOND_OF(r), replaced))

/* The chain of published ranges: is there another one of the same generation and timeline that moved the position from
   or to the same offset? The generation counts the accepted incarnations. */
#define IS_OF_GENERATION(batch, topic_id) (!GENERATION || TOPIC_ID(batch) == (topic_id))
#define IN_THE_PLACE_OF(other, batch, p) \
    ((other) != (batch) && STATE(other) == COMMITTED && IS_OF_GENERATION(other, TOPIC_ID(batch)) && \
     LINE(other) == LINE(batch) && MOVES(batch, p) && MOVES(other, p) && \
     (BEFORE(other, p) == BEFORE(batch, p) || AFTER(other, p) == AFTER(batch, p)))
#ifdef RELOAD
#define IN_THE_PLACE_OF_EARLIER(batch, p) \
    (IS_OF_GENERATION(batch, 1) && LINE(batch) == 0 && MOVES(batch, p) && \
     (BEFORE(batch, p) == 0 || AFTER(batch, p) == 1))
#else
#define IN_THE_PLACE_OF_EARLIER(batch, p) false
#endif
#define BREAKS_CHAIN(batch, p) \
    (IN_THE_PLACE_OF(1, batch, p) || IN_THE_PLACE_OF(2, batch, p) || \
     IN_THE_PLACE_OF(3, batch, p) || IN_THE_PLACE_OF(4, batch, p) || IN_THE_PLACE_OF_EARLIER(batch, p))

/* ---- The promise --------------------------------------------------------------------------------------------------
 * Three families of assertions; model/check.py prints the words after the family's name.
 * promise:  what the database holds.
 * rule:     what the design says on the way to it.
 * progress: no false alarm, no false verdict, nothing stuck.
 * -DCHECKED=1 checks only the first family, 2 the first two.
 */
#ifndef CHECKED
#define CHECKED 3
#endif
#define PROMISE(condition)  assert(condition)
#define RULE(condition)     assert(CHECKED < 2 || (condition))
#define PROGRESS(condition) assert(CHECKED < 3 || (condition))

#ifdef RELOAD /* What lies between position and loaded_to stays until it is replaced; so does the incarnation before. */
#define ROWS_OF(topic_id, to_0, to_1) (ROWS(topic_id, 0, 0, to_0) | ROWS(topic_id, 1, 0, to_1))
#define ROWS_THAT_STAY \
    (position_topic_id == 1 -> ROWS_OF(1, loaded_to, position[1]) : \
     (ROWS_OF(1, loaded_before, 1) | ROWS_OF(2, loaded_to, position[1])))
#else
#define ROWS_THAT_STAY \
    (position_topic_id == 0 -> 0 : \
     (ROWS(position_topic_id, 0, 0, position[0]) | ROWS(position_topic_id, 1, 0, position[1])))
#endif
#define ROWS_OF_OTHER_INCARNATION (position_topic_id == 1 -> 240 : 15)
#define MOVES_BACK(batch, p) (READS(batch, p) && AFTER(batch, p) < position[p])
#define SKIPS(batch, p)      (READS(batch, p) && START(batch, p) > position[p])
#define STILL_FITS(batch, p) (!READS(batch, p) || (BEFORE(batch, p) == position[p] && LINE(batch) == LINE_NOW))
#define CAN_BE_PUBLISHED(batch) \
    (STILL_FITS(batch, 0) && STILL_FITS(batch, 1) && TOPIC_ID(batch) == position_topic_id)
#define IS_STUCK(batch)      (STATE(batch) == PLANNED && !CAN_BE_PUBLISHED(batch))

/* What every reader may see after a COMMIT. */
inline check_visible()
{
    /* promise: rows and positions agree, and nothing is missing below a position */
    PROMISE(target == ROWS_THAT_STAY);
    /* promise: a request has at most one committed batch */
    PROMISE(COMMITTED_OF(0) <= 1 && COMMITTED_OF(1) <= 1);
    /* rule: at most one batch is outstanding */
    RULE(PLANNED_BATCHES <= 1);
    /* progress: every planned batch can still be published */
    PROGRESS(!IS_STUCK(1) && !IS_STUCK(2) && !IS_STUCK(3) && !IS_STUCK(4))
}

inline drop_staged(table)
{
    staged_by_winner[table * PARTITIONS] = 0;
    staged_by_winner[table * PARTITIONS + 1] = 0;
    staged_by_loser[table * PARTITIONS] = 0;
    staged_by_loser[table * PARTITIONS + 1] = 0;
#ifdef RELOAD
    staged_lacks_first[table * PARTITIONS] = false
#endif
}

inline forget_range(batch)
{
#ifdef RELOAD
    b_before[batch - 1] = 0; b_loaded_to[batch - 1] = 0; b_line[batch - 1] = 0
#else
    skip
#endif
}

/* Forget data of a batch that nobody will read again, so that histories that differ only in it are one state. */
inline forget_batch(batch)
{
    if
    :: batch != NONE && !IS_WORKED_ON(batch) ->
       CLAIM(batch) = NOBODY;
       if
       :: STATE(batch) == SUPERSEDED ->
          TOPIC_ID(batch) = 0; START(batch, 0) = 0; START(batch, 1) = 0; END(batch, 0) = 0; END(batch, 1) = 0;
          forget_range(batch)
       :: else
       fi
    :: else
    fi
}

inline leave_batch(who)
{
    batch_left = works_on[who];
    works_on[who] = NONE;
    forget_batch(batch_left);
    batch_left = NONE
}

/* The transaction of `who` ends. */
inline release(who)
{
    in_transaction[who] = false;
    inserted[who] = 0;
    twice[who] = false;
#ifdef RELOAD
    deleted[who] = 0;
#endif
    if :: pipeline_lock == who + 1 -> pipeline_lock = NOBODY :: else fi;
    if :: positions_lock == who + 1 -> positions_lock = NOBODY :: else fi;
    if :: batch_lock[0] == who + 1 -> batch_lock[0] = NOBODY :: else fi;
    if :: batch_lock[1] == who + 1 -> batch_lock[1] = NOBODY :: else fi;
    if :: batch_lock[2] == who + 1 -> batch_lock[2] = NOBODY :: else fi;
    if :: batch_lock[3] == who + 1 -> batch_lock[3] = NOBODY :: else fi
}

/* The server does the COMMIT of a publish. */
inline do_commit(who, batch)
{
    /* promise: no record is in the target twice */
    PROMISE(!twice[who] && ((target & ~DELETED(who)) & inserted[who]) == 0);
    /* promise: rows of another incarnation of the topic are never booked under a position */
    PROMISE((inserted[who] & ROWS_OF_OTHER_INCARNATION) == 0);
    /* promise: positions never move backwards */
    PROMISE(!MOVES_BACK(batch, 0) && !MOVES_BACK(batch, 1));
    /* promise: positions never skip */
    PROMISE(!SKIPS(batch, 0) && !SKIPS(batch, 1));
    /* rule: a superseded batch is never published */
    RULE(STATE(batch) != SUPERSEDED);
    /* rule: an attempt with an older claim changes nothing */
    RULE(CLAIM(batch) == who + 1);
    target = (target & ~DELETED(who)) | inserted[who];
    if :: READS(batch, 0) -> position[0] = AFTER(batch, 0) :: else fi;
    if :: READS(batch, 1) -> position[1] = AFTER(batch, 1) :: else fi;
#ifdef RELOAD
    if :: position[0] > loaded_to -> loaded_to = position[0] :: else fi;
#endif
    STATE(batch) = COMMITTED;
    check_visible();
    release(who)
}
