/*
 * An operator who resets the position to the log start (-DRESET), or accepts the topic that was created again (-DACCEPT).
 * Only once, and it supersedes the open batch; a refusal would only wait.
 *
 * A change is recorded like a plan: read, lock the pipeline, read again, supersede, compare-and-set, COMMIT.
 */

#ifdef RESET
#define MAY_CHANGE true
#else
#define MAY_CHANGE (log_topic_id != position_topic_id)
#endif
#define HAS_CHANGED (position[0] != seen_position || line != seen_line || position_topic_id != seen_topic_id)

inline record_change()
{
    if
    :: CHANGE_SUPERSEDES && seen_outstanding != NONE -> STATE(seen_outstanding) = SUPERSEDED; forget_batch(seen_outstanding)
    :: else
    fi;
    is_changed = true;
    position[0] = 0;
#ifdef RESET
    line = (NEXT_LINE -> seen_line + 1 : seen_line);
    loaded_to = seen_loaded_to;
#else
    loaded_before = seen_loaded_to;
    position[1] = 0;
    loaded_to = 0;
    position_topic_id = 2;
#endif
    printf("operator: records a change: position 0 in line %d of topic id %d, superseding batch %d\n",
        line, position_topic_id, seen_outstanding);
    check_visible()
}

active proctype Operator()
{
    byte seen_position, seen_line, seen_loaded_to, seen_topic_id, seen_outstanding;

end_look:
    atomic { /* One snapshot of the ledger; Kafka's topic id and log start. */
        !is_changed && MAY_CHANGE ->
        seen_position = position[0];
        seen_line = line;
        seen_loaded_to = loaded_to;
        seen_topic_id = position_topic_id;
        seen_outstanding = OUTSTANDING;
        printf("operator: sees position %d in line %d, outstanding batch %d\n", position[0], line, seen_outstanding)
    }

    atomic { /* The recording transaction: lock the pipeline, look again. */
        !PIPELINE_LOCK || pipeline_lock == NOBODY ->
        if
        :: CHANGE_RECHECK && (OUTSTANDING != seen_outstanding || HAS_CHANGED) -> goto again
        :: else
        fi;
        if
        :: PIPELINE_LOCK -> pipeline_lock = _pid + 1
        :: else
        fi
    }

    atomic { /* Supersede, compare-and-set, COMMIT. A publish under way is waited for. */
        positions_lock == NOBODY && (seen_outstanding == NONE || batch_lock[seen_outstanding - 1] == NOBODY) ->
        if
        :: CHANGE_SUPERSEDES && seen_outstanding != NONE && STATE(seen_outstanding) != PLANNED && SUPERSEDE_ONLY_PLANNED ->
           goto again
        :: CHANGE_COMPARE_AND_SET && HAS_CHANGED -> goto again
        :: else
        fi;
        d_step { record_change() };
        goto over
    }

again:
    atomic { printf("operator: the ledger has moved, looks again\n"); goto over }

over:
    atomic {
        d_step {
            if :: pipeline_lock == _pid + 1 -> pipeline_lock = NOBODY :: else fi;
            seen_position = 0; seen_line = 0; seen_loaded_to = 0; seen_topic_id = 0; seen_outstanding = NONE
        };
        goto end_look
    }
}
