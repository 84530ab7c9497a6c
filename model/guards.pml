/*
 * The guards of the protocol, one macro each. A guard is on unless the model is compiled with -DNO_<GUARD>.
 *
 * Above each guard: what it is, and where the code has it. model/check.py takes guards out and says what must break.
 */

/* Publish: a position moves only if it is still as planned, else the batch stops (advance_positions.sql). */
#ifdef NO_COMPARE_AND_SET
#define COMPARE_AND_SET false
#else
#define COMPARE_AND_SET true
#endif

/* Publish: only the newest claim may go on (protocol/publish.py, _owns). */
#ifdef NO_CLAIM_CHECK
#define CLAIM_CHECK false
#else
#define CLAIM_CHECK true
#endif

/* Publish: only a planned batch is published; a committed one is success (protocol/publish.py, _owns). */
#ifdef NO_STATE_CHECK
#define STATE_CHECK false
#else
#define STATE_CHECK true
#endif

/* Publish: the batch row is locked before it is read, and stays locked to the end (lock_batch.sql). */
#ifdef NO_BATCH_LOCK
#define BATCH_LOCK false
#else
#define BATCH_LOCK true
#endif

/* Publish: the statement that makes the batch committed checks state and claim once more (commit_batch.sql). */
#ifdef NO_COMMIT_RECHECK
#define COMMIT_RECHECK false
#else
#define COMMIT_RECHECK true
#endif

/* Publish: ranges that were published before are not published again (record_range_outcomes.sql, and their number). */
#ifdef NO_RANGES_ONCE
#define RANGES_ONCE false
#else
#define RANGES_ONCE true
#endif

/* Publish: no two published ranges begin or end at the same position (ranges_form_a_chain, ranges_end_a_chain_once). */
#ifdef NO_CHAIN_INDEX
#define CHAIN_INDEX false
#else
#define CHAIN_INDEX true
#endif

/* Any change of a batch: its state only moves forward (trigger batch_state_changes_only_forward). */
#ifdef NO_FORWARD_STATES
#define FORWARD_STATES false
#else
#define FORWARD_STATES true
#endif

/* Publish: rows, positions and the batch's state are one transaction (protocol/publish.py). */
#ifdef NO_ONE_TRANSACTION
#define ONE_TRANSACTION false
#else
#define ONE_TRANSACTION true
#endif

/* Publish: it takes only rows of the winning attempt of each task (publish_rows.sql). */
#ifdef NO_WINNER_FILTER
#define WINNER_FILTER false
#else
#define WINNER_FILTER true
#endif

/* Publish: the number of rows taken from staging is the number that the tasks reported (_require_staged). */
#ifdef NO_STAGED_COUNT
#define STAGED_COUNT false
#else
#define STAGED_COUNT true
#endif

/* Stage: each claim has staging tables of its own (protocol/staging.py, staging_name). */
#ifdef NO_STAGING_PER_CLAIM
#define STAGING_PER_CLAIM false
#else
#define STAGING_PER_CLAIM true
#endif

/* After staging, before publish: the topic id in Kafka is still the frozen one (protocol/log_faults.py). */
#ifdef NO_TOPIC_ID_BEFORE_PUBLISH
#define TOPIC_ID_BEFORE_PUBLISH false
#else
#define TOPIC_ID_BEFORE_PUBLISH true
#endif

/* Plan: the topic id in Kafka is that of the positions (protocol/log_faults.py, _identity_faults). */
#ifdef NO_TOPIC_ID_AT_PLAN
#define TOPIC_ID_AT_PLAN false
#else
#define TOPIC_ID_AT_PLAN true
#endif

/* Plan: the topic id is read again after the offsets, so they belong to it (kafka/log.py, snapshot). */
#ifdef NO_TOPIC_ID_AFTER_OFFSETS
#define TOPIC_ID_AFTER_OFFSETS false
#else
#define TOPIC_ID_AFTER_OFFSETS true
#endif

/* Plan: plans of a pipeline are recorded one at a time (lock_pipeline.sql). */
#ifdef NO_PIPELINE_LOCK
#define PIPELINE_LOCK false
#else
#define PIPELINE_LOCK true
#endif

/* Plan: under that lock the ledger is read again and must stand as it was seen (ledger_view.py, still_stands). */
#ifdef NO_VIEW_RECHECK
#define VIEW_RECHECK false
#else
#define VIEW_RECHECK true
#endif

/* Plan: that second reading takes batches before positions, so a publish between the two is seen (read_plan_view). */
#ifdef NO_BATCHES_BEFORE_POSITIONS
#define BATCHES_BEFORE_POSITIONS false
#else
#define BATCHES_BEFORE_POSITIONS true
#endif

/* Plan: only a batch that is still planned is superseded (supersede_batch.sql, and the number of its rows). */
#ifdef NO_SUPERSEDE_ONLY_PLANNED
#define SUPERSEDE_ONLY_PLANNED false
#else
#define SUPERSEDE_ONLY_PLANNED true
#endif

/* Plan: one planned batch a pipeline (unique index one_outstanding_batch_per_pipeline). */
#ifdef NO_ONE_OUTSTANDING
#define ONE_OUTSTANDING false
#else
#define ONE_OUTSTANDING true
#endif

/* Plan: one planned or committed batch a request (unique index one_standing_batch_per_request). */
#ifdef NO_ONE_STANDING
#define ONE_STANDING false
#else
#define ONE_STANDING true
#endif

/* Plan: another request's batch is left alone while its holder gives signs of life (protocol/plan.py). */
#ifdef NO_HOLD
#define HOLD false
#else
#define HOLD true
#endif

/* In doubt: the ledger decides whether COMMIT happened; without it the attempt believes that it did (_settle). */
#ifdef NO_IN_DOUBT_READ
#define IN_DOUBT_READ false
#else
#define IN_DOUBT_READ true
#endif

/* In doubt: that reading waits for a COMMIT under way; a plain one would not (lock_batch.sql: FOR UPDATE). */
#ifdef NO_IN_DOUBT_LOCK
#define IN_DOUBT_LOCK false
#else
#define IN_DOUBT_LOCK true
#endif

/* Publish: rows that the batch reads again are deleted first, by identity (delete_replaced.sql). */
#ifdef NO_REPLACE
#define REPLACE false
#else
#define REPLACE true
#endif

/* Publish: they are deleted up to loaded_to, not to the position (protocol/position.py, OffsetRange.replaced_to). */
#ifdef NO_UP_TO_LOADED
#define UP_TO_LOADED false
#else
#define UP_TO_LOADED true
#endif

/* Publish: deleted rows must be staged again, else ReloadWouldLose (protocol/accounting.py, require_nothing_lost). */
#ifdef NO_NOTHING_LOST
#define NOTHING_LOST false
#else
#define NOTHING_LOST true
#endif

/* Plan: a span above the position begins at the position (protocol/ranges.py). */
#ifdef NO_NO_GAP
#define NO_GAP false
#else
#define NO_GAP true
#endif

/* Position change: backwards begins the next line (protocol/ledger_view.py, moved). */
#ifdef NO_NEXT_LINE
#define NEXT_LINE false
#else
#define NEXT_LINE true
#endif

/* Position change: an accepted topic begins the next generation, which is in every key (protocol/changes.py). */
#ifdef NO_GENERATION
#define GENERATION false
#else
#define GENERATION true
#endif

/* Position change: it supersedes the open batch, or is refused (protocol/decisions.py, batch_to_supersede). */
#ifdef NO_CHANGE_SUPERSEDES
#define CHANGE_SUPERSEDES false
#else
#define CHANGE_SUPERSEDES true
#endif

/* Position change: under the pipeline lock the ledger must stand as it was seen (ledger_view.py, still_stands). */
#ifdef NO_CHANGE_RECHECK
#define CHANGE_RECHECK false
#else
#define CHANGE_RECHECK true
#endif

/* Position change: a position moves only if it is as it was seen (change_positions.sql). */
#ifdef NO_CHANGE_COMPARE_AND_SET
#define CHANGE_COMPARE_AND_SET false
#else
#define CHANGE_COMPARE_AND_SET true
#endif
