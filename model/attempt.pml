/*
 * The attempts of the runs: plan, claim, stage, publish.
 *
 * A step is atomic; between two steps anything may happen, and before each the attempt may die. A run's next attempt
 * begins when the one before has ended, or (only once) while it still goes on: the older one is the zombie.
 */

#define OWN       NEWEST_OF(request)
#define MINE      works_on[_pid]
#define IS(batch, state) ((batch) != NONE && STATE(batch) == (state))
#define TABLE     (STAGING_PER_CLAIM -> _pid : MINE - 1)
#define WINNER(t) staged_by_winner[TABLE * PARTITIONS + (t)]
#define LOSER(t)  staged_by_loser[TABLE * PARTITIONS + (t)]
#define SPAN(t)   (END(MINE, t) - START(MINE, t))

/* Without reloads the runs are alike, so run 0 begins first; with a reload they differ. */
#define MAY_BEGIN \
    ((_pid == 0 && attempts[0] < ATTEMPTS && in_doubt[0] == NO_COMMIT) || \
     (_pid == 1 && attempts[1] < ATTEMPTS && in_doubt[1] == NO_COMMIT && RUN_0_HAS_BEGUN) || \
     (_pid == 2 && !has_zombie && (MAY_OVERLAP(0) || MAY_OVERLAP(1))))
#ifdef RELOAD
#define RUN_0_HAS_BEGUN true
#else
#define RUN_0_HAS_BEGUN (attempts[0] > 0)
#endif
#define MAY_OVERLAP(r) (is_alive[r] && attempts[r] < ATTEMPTS)

/* Busy: the plan of another request waits. A hold ends when its holder is dead, or is paused: once, as the zombie. */
#define IS_HELD (HOLD && OUTSTANDING != NONE && HAS_LIVE_HOLDER(OUTSTANDING))
#define IS_BUSY (!IS(OWN, PLANNED) && !IS(OWN, COMMITTED) && IS_HELD && has_zombie)

#define BATCHES_MOVED   (OUTSTANDING != seen_outstanding || OWN != seen_own)
#ifdef RELOAD
#define LINE_MOVED (line != seen_line || loaded_to != seen_loaded_to)
#define IS_RELOAD  (request == 1)
#define IS_ONE_READING true
#else
#define IS_ONE_READING false
#define LINE_MOVED false
#define IS_RELOAD  false
#endif
#define POSITIONS_MOVED \
    (position[0] != seen_position[0] || position[1] != seen_position[1] || position_topic_id != seen_topic_id || LINE_MOVED)
#define HAS_MOVED(is_batches) (VIEW_RECHECK && (is_batches -> BATCHES_MOVED : POSITIONS_MOVED))
#define IS_READ_TO_THE_END (log_end[0] == seen_position[0] && log_end[1] == seen_position[1])

#define WHO request, _pid

inline may_die()
{
    if
    :: skip
    :: faults < MAX_FAULTS -> goto died
    fi
}

inline forget_plan()
{
    seen_position[0] = 0; seen_position[1] = 0; seen_topic_id = 0; seen_outstanding = NONE; seen_own = NONE;
    end_seen[0] = 0; end_seen[1] = 0; topic_id = 0; is_right = false;
#ifdef RELOAD
    seen_loaded_to = 0; seen_line = 0; span_start = 0
#endif
}

/* One task reads its range and commits its COPY; Spark may have run one of them twice. */
inline stage(t)
{
    if
    :: log_end[t] < END(MINE, t) -> goto stopped /* offset out of range */
    :: log_end[t] >= END(MINE, t) && WINNER(t) == 0 ->
       printf("run %d by driver %d: stages partition %d of topic id %d\n", WHO, t, log_topic_id);
       if
       :: skip
       :: t == 0 && STAGING_PER_CLAIM -> LOSER(t) = log_topic_id; printf("run %d by driver %d: Spark has run that task twice\n", WHO)
       fi;
       WINNER(t) = log_topic_id;
#ifdef RELOAD
       staged_lacks_first[TABLE * PARTITIONS + (t)] = IS_COMPACTED && t == 0 && START(MINE, t) == 0;
#endif
    :: log_end[t] >= END(MINE, t) && WINNER(t) != 0 ->
       /* Only if claims share tables: another claim's rows are there, and Spark numbers task attempts from 0. */
       LOSER(t) = log_topic_id;
       printf("run %d by driver %d: stages partition %d beside what is there\n", WHO, t)
    fi
}

#define LACKS(t)     LACKS_FIRST(TABLE * PARTITIONS + (t))
#define STAGED(t)    (SPAN(t) - LACKS(t))
#define STAGED_ROWS(topic_id, t) (ROWS(topic_id, t, START(MINE, t), END(MINE, t)) & ~LACKS(t))

/* INSERT ... SELECT from staging: count its rows, and those of a complete staging. */
inline insert_rows(t)
{
    if
    :: READS(MINE, t) ->
       rows_wanted = rows_wanted + STAGED(t);
       if
       :: WINNER(t) != 0 ->
          rows_found = rows_found + STAGED(t);
          inserted[_pid] = inserted[_pid] | STAGED_ROWS(WINNER(t), t)
       :: else
       fi;
       if
       :: LOSER(t) != 0 && !(WINNER_FILTER && STAGING_PER_CLAIM) ->
          rows_found = rows_found + STAGED(t);
          twice[_pid] = twice[_pid] || LOSER(t) == WINNER(t);
          inserted[_pid] = inserted[_pid] | STAGED_ROWS(LOSER(t), t)
       :: else
       fi
    :: else
    fi
}

/* DELETE by identity of rows that were loaded before; `would_lose`: the log no longer holds one of their records. */
inline replace_rows()
{
#ifdef RELOAD
    if
    :: REPLACE && READS(MINE, 0) && START(MINE, 0) < REPLACED_TO ->
       deleted[_pid] = target & ROWS(TOPIC_ID(MINE), 0, START(MINE, 0), REPLACED_TO);
       would_lose = LACKS(0) && (deleted[_pid] & 1) != 0
    :: else
    fi
#else
    skip
#endif
}

/* What the plan reads of partition 0; partition 1 has only live runs. */
inline choose_range()
{
    START(new, 0) = seen_position[0];
    END(new, 0) = end_seen[0];
#ifdef RELOAD
    if
    :: IS_RELOAD -> START(new, 0) = (NO_GAP && span_start > seen_position[0] -> seen_position[0] : span_start)
    :: else
    fi;
    b_before[new - 1] = seen_position[0];
    b_loaded_to[new - 1] = seen_loaded_to;
    b_line[new - 1] = seen_line
#endif
}

inline record_batch()
{
    if
    :: seen_outstanding != NONE ->
       /* rule: a committed batch stays committed */
       RULE(STATE(seen_outstanding) != COMMITTED);
       STATE(seen_outstanding) = SUPERSEDED;
       forget_batch(seen_outstanding)
    :: else
    fi;
    if
    :: seen_topic_id == 0 -> position_topic_id = topic_id; seen_topic_id = topic_id
    :: else
    fi;
    new = (STATE(FIRST_OF(request)) == UNUSED -> FIRST_OF(request) : SECOND_OF(request));
    TOPIC_ID(new) = seen_topic_id;
    choose_range();
    START(new, 1) = seen_position[1];
    END(new, 1) = end_seen[1];
    STATE(new) = (READS(new, 0) || READS(new, 1) -> PLANNED : COMMITTED);
    printf("run %d by driver %d: records batch %d: [%d, %d) and [%d, %d), superseding batch %d\n",
        WHO, new, START(new, 0), END(new, 0), START(new, 1), END(new, 1), seen_outstanding);
    /* progress: a run that finds nothing to read is right */
    PROGRESS(STATE(new) == PLANNED || is_right);
    check_visible();
    if
    :: STATE(new) == PLANNED -> MINE = new
    :: else
    fi;
    new = NONE;
    release(_pid);
    forget_plan()
}

active [DRIVERS] proctype Attempt()
{
    byte request;
    byte seen_position[PARTITIONS];
    byte seen_topic_id, seen_outstanding, seen_own;
    byte end_seen[PARTITIONS];
    byte topic_id;
    bool is_right; /* bookkeeping: at some moment while Kafka was asked there was nothing to read */
    byte rows_found, rows_wanted, new;
#ifdef RELOAD
    byte seen_loaded_to, seen_line;
    byte span_start; /* of a reload: [0, 1), [0, 2) or [1, 2) */
    bool would_lose;
#endif

end_begin:
    atomic {
        MAY_BEGIN ->
        if
        :: _pid < RUNS -> request = _pid
        :: _pid == 2 && MAY_OVERLAP(0) -> request = 0; has_zombie = true
        :: _pid == 2 && MAY_OVERLAP(1) -> request = 1; has_zombie = true
        fi;
        d_step {
            attempts[request]++;
            is_alive[_pid] = true;
            printf("run %d by driver %d: begins an attempt\n", WHO)
        }
    }

    /* ---- Plan ------------------------------------------------------------------------------------------------- */

look:
    atomic { /* One snapshot of the ledger. Kafka: which topic is it? */
        !IS_BUSY ->
        may_die();
        if
        :: IS(OWN, COMMITTED) -> goto succeeded
        :: IS(OWN, PLANNED) -> MINE = OWN; printf("run %d by driver %d: finds its batch %d planned\n", WHO, MINE); goto claim
        :: else
        fi;
        d_step {
            if
            :: IS_HELD -> has_zombie = true
            :: else
            fi;
            seen_position[0] = position[0];
            seen_position[1] = position[1];
            seen_topic_id = position_topic_id;
#ifdef RELOAD
            seen_loaded_to = loaded_to;
            seen_line = line;
#endif
            seen_outstanding = OUTSTANDING;
            seen_own = OWN;
            topic_id = log_topic_id;
            is_asked = is_asked || position_topic_id == 0;
            is_right = (seen_topic_id == topic_id || seen_topic_id == 0) && IS_READ_TO_THE_END;
            printf("run %d by driver %d: sees positions %d and %d, outstanding batch %d; asks Kafka: topic id %d\n",
                WHO, position[0], position[1], seen_outstanding, topic_id)
        };
        if
        :: TOPIC_ID_AT_PLAN && seen_topic_id != 0 && topic_id != seen_topic_id -> goto stopped
        :: else
        fi
    }

    atomic { /* Kafka: where does it end? */
        may_die();
        d_step {
            end_seen[0] = log_end[0];
            end_seen[1] = log_end[1];
            is_right = IS_READ_TO_THE_END &&
                (is_right || log_topic_id == (seen_topic_id == 0 -> topic_id : seen_topic_id));
            printf("run %d by driver %d: asks Kafka: end offsets %d and %d\n", WHO, end_seen[0], end_seen[1])
        };
        if
        :: TOPIC_ID_AFTER_OFFSETS && topic_id != log_topic_id -> goto stopped
        :: end_seen[0] < seen_position[0] || end_seen[1] < seen_position[1] -> goto stopped /* LogTruncated */
        :: else
        fi;
#ifdef RELOAD
        if
        :: !IS_RELOAD
        :: IS_RELOAD && end_seen[0] > 0 -> end_seen[0] = 1
        :: IS_RELOAD && end_seen[0] > 1 -> span_start = 0
        :: IS_RELOAD && end_seen[0] > 1 -> span_start = 1
        :: IS_RELOAD && end_seen[0] == 0
        fi;
#endif
        if
        :: seen_topic_id != 0 -> topic_id = 0
        :: else
        fi
    }

    atomic { /* The recording transaction: lock the pipeline; first half of the second reading. */
        !PIPELINE_LOCK || pipeline_lock == NOBODY ->
        may_die();
        printf("run %d by driver %d: begins to record its plan; reads the ledger again, first half\n", WHO);
        if
        :: HAS_MOVED(BATCHES_BEFORE_POSITIONS) || (IS_ONE_READING && HAS_MOVED(!BATCHES_BEFORE_POSITIONS)) -> goto moved
        :: else
        fi;
        in_transaction[_pid] = true;
        if
        :: PIPELINE_LOCK -> pipeline_lock = ME
        :: else
        fi
    }

#ifndef RELOAD /* A change takes the same lock: between the halves nothing new can happen. */
    atomic { /* Second half: another statement, which sees what was committed in between. */
        may_die();
        printf("run %d by driver %d: second half\n", WHO);
        if
        :: !in_transaction[_pid] -> goto failed
        :: in_transaction[_pid] && HAS_MOVED(!BATCHES_BEFORE_POSITIONS) -> goto moved
        :: else
        fi
    }
#endif

    atomic { /* Supersede, insert, COMMIT. A publish under way is waited for. */
        !in_transaction[_pid] || seen_outstanding == NONE || batch_lock[seen_outstanding - 1] == NOBODY ->
        may_die();
        if
        :: !in_transaction[_pid] -> goto failed
        :: else
        fi;
        if
        :: seen_outstanding != NONE && STATE(seen_outstanding) != PLANNED && SUPERSEDE_ONLY_PLANNED -> goto moved
        :: seen_outstanding != NONE && STATE(seen_outstanding) == COMMITTED && !SUPERSEDE_ONLY_PLANNED && FORWARD_STATES ->
           goto alarmed
        :: seen_topic_id == 0 && position_topic_id != 0 -> goto moved /* unique: one position a partition */
        :: ONE_OUTSTANDING && ANY_PLANNED_BESIDE(seen_outstanding) -> goto moved
        :: ONE_STANDING && ANY_STANDS_BESIDE(request, seen_outstanding) -> goto moved
        :: else
        fi;
        d_step { record_batch() };
        if
        :: MINE == NONE -> goto succeeded
        :: else
        fi
    }

    /* ---- Load ------------------------------------------------------------------------------------------------- */

claim:
    atomic { /* Lock the batch row: a publish under way is waited for. Then the first task. */
        batch_lock[MINE - 1] == NOBODY ->
        may_die();
        if
        :: STATE(MINE) == PLANNED -> CLAIM(MINE) = ME; printf("run %d by driver %d: claims batch %d\n", WHO, MINE)
        :: else -> goto fenced
        fi;
        if
        :: READS(MINE, 0) -> stage(0)
        :: else
        fi;
        if
        :: !READS(MINE, 1) -> goto publish
        :: else
        fi
    }

    atomic {
        may_die();
        stage(1)
    }

    /* ---- Publish ---------------------------------------------------------------------------------------------- */

publish:
    atomic { /* Kafka: is it still that topic? Then lock the batch row, once it is free, and look at it. */
        may_die();
        if
        :: TOPIC_ID_BEFORE_PUBLISH && log_topic_id != TOPIC_ID(MINE) -> goto stopped
        :: else
        fi;
        if
        :: BATCH_LOCK && batch_lock[MINE - 1] != NOBODY ->
           if
           :: true -> goto fenced /* Busy: somebody else publishes it, for longer than this one waits */
           :: true -> batch_lock[MINE - 1] == NOBODY
           fi
        :: else
        fi;
        if
        :: STATE_CHECK && STATE(MINE) != PLANNED -> goto fenced
        :: CLAIM_CHECK && CLAIM(MINE) != ME -> goto fenced
        :: else
        fi;
        in_transaction[_pid] = true;
        printf("run %d by driver %d: begins to publish batch %d\n", WHO, MINE);
        if
        :: BATCH_LOCK -> batch_lock[MINE - 1] = ME
        :: else
        fi
    }

    atomic { /* Positions, rows, ranges, batch; COMMIT. */
        !in_transaction[_pid] ||
        (positions_lock == NOBODY && (batch_lock[MINE - 1] == NOBODY || batch_lock[MINE - 1] == ME)) ->
        may_die();
        if
        :: !in_transaction[_pid] -> goto failed
        :: in_transaction[_pid] && COMPARE_AND_SET && !CAN_BE_PUBLISHED(MINE) -> goto alarmed
        :: else
        fi;
        d_step { replace_rows(); insert_rows(0); insert_rows(1) };
#ifdef RELOAD
        if
        :: NOTHING_LOST && would_lose -> would_lose = false; goto stopped /* ReloadWouldLose */
        :: else -> would_lose = false
        fi;
#endif
        if
        :: STAGED_COUNT && rows_found < rows_wanted -> goto failed /* StagingLost */
        :: STAGED_COUNT && rows_found > rows_wanted -> goto alarmed
        :: else -> rows_found = 0; rows_wanted = 0
        fi;
        if
        :: RANGES_ONCE && STATE(MINE) == COMMITTED -> goto alarmed
        :: CHAIN_INDEX && (BREAKS_CHAIN(MINE, 0) || BREAKS_CHAIN(MINE, 1)) -> goto alarmed
        :: else
        fi;
        if
        :: COMMIT_RECHECK && (STATE(MINE) != PLANNED || CLAIM(MINE) != ME) -> goto fenced
        :: else
        fi;
        if
        :: FORWARD_STATES && STATE(MINE) == SUPERSEDED -> goto alarmed
        :: else
        fi;
        if
        :: !ONE_TRANSACTION -> d_step { printf("run %d by driver %d: commits the rows\n", WHO); target = target | inserted[_pid]; inserted[_pid] = 0; check_visible() }
        :: else
        fi;
        if
        :: d_step {
               printf("run %d by driver %d: writes, COMMIT of batch %d\n", WHO, MINE);
               do_commit(_pid, MINE)
           };
           goto succeeded
        :: faults < MAX_FAULTS ->
           faults++;
           batch_lock[MINE - 1] = ME;
           positions_lock = ME;
           if
           :: in_doubt[_pid] = REACHED; printf("run %d by driver %d: writes, COMMIT, and gets no answer\n", WHO)
           :: in_doubt[_pid] = CUT; printf("run %d by driver %d: writes, is cut off before COMMIT arrives\n", WHO)
           fi;
           if
           :: skip
           :: goto failed /* it dies then */
           fi
        fi
    }

    atomic { /* In doubt: the batch row decides, as soon as it can be locked. */
        printf("run %d by driver %d: does not know whether it has committed\n", WHO);
        if
        :: IN_DOUBT_READ && IN_DOUBT_LOCK && batch_lock[MINE - 1] != NOBODY ->
           if
           :: goto failed /* lock time-out: CommitStateUnknown */
           :: batch_lock[MINE - 1] == NOBODY -> skip /* waits */
           fi
        :: else
        fi;
        if
        :: IN_DOUBT_READ && STATE(MINE) == PLANNED && CLAIM(MINE) == ME ->
           printf("run %d by driver %d: reads that nothing was committed\n", WHO);
           /* progress: who is told that nothing was committed can rely on it */
           PROGRESS(in_doubt[_pid] != REACHED);
           goto failed
        :: IN_DOUBT_READ && !(STATE(MINE) == PLANNED && CLAIM(MINE) == ME) -> goto fenced
        :: !IN_DOUBT_READ -> goto succeeded
        fi
    }

    /* ---- Ends ------------------------------------------------------------------------------------------------- */

moved: /* LedgerMoved: the plan is made again. */
    atomic {
        d_step { release(_pid); forget_plan(); printf("run %d by driver %d: the ledger has moved, plans again\n", WHO) };
        goto look
    }

fenced: /* Another attempt or plan has the batch: committed is success, anything else is left to a retry. */
    atomic {
        if
        :: STATE(MINE) == COMMITTED -> goto succeeded
        :: else -> goto failed
        fi
    }

succeeded:
    atomic {
        /* progress: who reports success has a committed batch */
        PROGRESS(COMMITTED_OF(request) == 1);
        attempts[request] = ATTEMPTS;
        printf("run %d by driver %d: reports success\n", WHO);
        goto over
    }

failed: /* RetryLater */
    atomic {
        printf("run %d by driver %d: fails, to be retried\n", WHO);
        /* progress: without a fault no attempt fails */
        PROGRESS(faults > 0 || has_zombie || IS_CHANGED || IS_COMPACTED);
        goto over
    }

stopped: /* StopAndCall: TopicRecreated, LogTruncated, OffsetsExpired or ReloadWouldLose */
    atomic {
        printf("run %d by driver %d: stops, the log is not the one that was planned\n", WHO);
        /* progress: a run stops for the log only after the topic was re-created, or compacted */
        PROGRESS(log_topic_id == 2 || IS_COMPACTED);
        goto over
    }

alarmed: /* StopAndCall: AccountingMismatch, or an error that nobody expected */
    atomic {
        printf("run %d by driver %d: stops with an alarm\n", WHO);
        /* progress: a sound run is never stopped by a check */
        PROGRESS(false);
        goto over
    }

died:
    atomic { faults++; printf("run %d by driver %d: dies\n", WHO); goto over }

over: /* The data of a COMMIT under way stays until the server has ended it. */
    atomic {
        d_step {
            is_alive[_pid] = false;
            forget_plan();
            rows_found = 0;
            rows_wanted = 0;
            if :: STAGING_PER_CLAIM -> drop_staged(_pid) :: else fi;
            if :: in_doubt[_pid] == NO_COMMIT -> release(_pid); leave_batch(_pid) :: else fi;
            if :: _pid == 2 -> request = 0 :: else fi
        };
        goto end_begin
    }
}
