/*
 * Kafka's log. Every offset holds one readable record: how the reader handles markers, aborted and compacted records is
 * its own contract (tests/contracts), not the protocol's.
 */

byte log_topic_id = 1;          /* incarnation of the topic: 2 after it was deleted and created again */
#ifdef RESET                    /* One record waits in partition 0. */
byte log_end[PARTITIONS] = { 2, 1 };
#else
byte log_end[PARTITIONS] = 1;
#endif
#define MAX_END_0 2             /* one record may be appended to partition 0; partition 1 holds one */
bool is_asked;                  /* before the first plan: somebody has asked; until then re-creating changes nothing */
#ifdef RESET
bool is_compacted;              /* the first record of partition 0 is gone */
#endif
