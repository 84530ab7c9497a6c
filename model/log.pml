/*
 * Kafka's log. Every offset holds one readable record: what the reader does about markers, aborted and compacted records
 * is its own contract (tests/contracts), not the protocol's.
 */

byte log_topic_id = 1;          /* incarnation of the topic: 2 after it was deleted and created again */
byte log_end[PARTITIONS] = 1;
#define MAX_END_0 2             /* one record may be appended to partition 0; partition 1 holds one */
bool is_asked;                  /* before the first plan: somebody has asked; until then re-creating changes nothing */
