/*
 * What happens to Kafka and PostgreSQL while attempts run: everything here may happen at any moment.
 */

#define IS_STAGED(table) \
    (staged_by_winner[(table) * PARTITIONS] != 0 || staged_by_winner[(table) * PARTITIONS + 1] != 0)
#define CAN_LOSE(a) (in_transaction[a] || in_doubt[a] != NO_COMMIT || IS_STAGED(a))

inline crash_server_of(who)
{
    release(who);
    if
    :: in_doubt[who] != NO_COMMIT && !is_alive[who] -> leave_batch(who)
    :: else
    fi;
    in_doubt[who] = NO_COMMIT
}

/* The server ends a COMMIT whose client is gone or cannot be reached. */
inline end_commit(who)
{
    atomic {
        in_doubt[who] != NO_COMMIT ->
        d_step {
            if
            :: in_doubt[who] == REACHED ->
               printf("PostgreSQL: does the COMMIT of driver %d\n", who);
               do_commit(who, works_on[who])
            :: else ->
               printf("PostgreSQL: rolls back driver %d\n", who);
               release(who)
            fi;
            in_doubt[who] = NO_COMMIT;
            if
            :: !is_alive[who] -> leave_batch(who)
            :: else
            fi
        }
    }
}

active proctype World()
{
end:
    do
    :: atomic { /* A producer appends. */
           log_topic_id == 1 && log_end[0] < MAX_END_0 ->
           log_end[0]++;
           printf("Kafka: a record is appended to partition 0\n")
       }
#ifndef RESET
    :: atomic { /* The topic is deleted and created again: shorter, as long as or longer than what was loaded. */
           log_topic_id == 1 && (position_topic_id != 0 || is_asked) ->
           log_topic_id = 2;
           if
           :: true -> log_end[0] = 0; log_end[1] = 0
           :: true -> log_end[0] = 2; log_end[1] = (IS_ACCEPTED_LATER -> 0 : 1)
           fi;
           printf("Kafka: the topic is created again, with end offsets %d and %d\n", log_end[0], log_end[1])
       }
#else
    :: atomic { /* Compaction. */
           !is_compacted ->
           is_compacted = true;
           printf("Kafka: the first record of partition 0 is compacted away\n")
       }
#endif
    :: atomic { /* PostgreSQL crashes and comes back: transactions are rolled back, UNLOGGED tables are empty. */
           faults < MAX_FAULTS && (CAN_LOSE(0) || CAN_LOSE(1) || CAN_LOSE(2) || IS_STAGED(3)) ->
           d_step {
               faults++;
               printf("PostgreSQL: crashes and comes back\n");
               crash_server_of(0); crash_server_of(1); crash_server_of(2);
               drop_staged(0); drop_staged(1); drop_staged(2); drop_staged(3)
           }
       }
    :: end_commit(0)
    :: end_commit(1)
    :: end_commit(2)
    od
}
