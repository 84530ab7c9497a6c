/* Records of one partition, from librdkafka's queue into the buffers of Arrow arrays, without an object for each.
 *
 * The part of the trial of consume_buffers.py that needs a compiler. Python calls it through ctypes, which releases the
 * interpreter's lock meanwhile. It does for each record what spark_jobs/reader.py and records.py do: whose record it is,
 * rising offsets, the end of the range, time and time type, null and empty values. Headers are looked for, not read.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

/* What is used of librdkafka's public interface: the wheel of confluent-kafka holds the library without its header. */
typedef struct {
    int error;
    void *topic;
    int32_t partition;
    void *value;
    size_t value_size;
    void *key;
    size_t key_size;
    int64_t offset;
    void *owned_by_librdkafka;
} Message;

extern Message *rd_kafka_consume_queue(void *queue, int timeout_ms);
extern ssize_t rd_kafka_consume_batch_queue(void *queue, int timeout_ms, Message **messages, size_t size);
extern const char *rd_kafka_topic_name(const void *topic);
extern int64_t rd_kafka_message_timestamp(const Message *message, int *type);
extern int rd_kafka_message_headers(const Message *message, void **headers);
extern int32_t rd_kafka_message_leader_epoch(const Message *message);
extern void rd_kafka_message_destroy(Message *message);

enum { NO_SUCH_ENTRY = -156, PARTITION_END = -191 };
enum { EMPTY, FULL, ENDED, HAS_HEADERS, OUT_OF_ORDER, FAILED };
/* As many as spark_jobs/reader.py takes before it looks at them. */
enum { MOST_AT_ONCE = 250 };

/* A large_binary array: `ends` has one number more than there are records, `valid` one bit for each. */
typedef struct {
    int64_t *ends;
    uint8_t *valid;
    uint8_t *bytes;
    int64_t nulls;
} Texts;

/* Filled in by Python up to `most_bytes`, by fill() from there on. All memory of arrays is zero at the beginning. */
typedef struct {
    const char *topic;
    int64_t partition;
    int64_t end;
    int64_t next;
    int64_t most_records;
    int64_t most_bytes;
    int64_t records;
    int64_t needed_bytes;
    int64_t error;
    int64_t first_epoch;
    int64_t end_epoch;
    int64_t *offsets;
    int64_t *times;
    uint8_t *times_valid;
    int64_t no_times;
    int8_t *time_types;
    Texts keys;
    Texts values;
    int64_t held_at;
    int64_t held_count;
    Message *held[MOST_AT_ONCE];
} Batch;

static void set_bit(uint8_t *bits, int64_t place) { bits[place >> 3] |= (uint8_t)(1 << (place & 7)); }

static void add_text(Texts *texts, int64_t place, const void *bytes, size_t size) {
    int64_t begin = texts->ends[place];
    if (bytes) {
        memcpy(texts->bytes + begin, bytes, size);
        set_bit(texts->valid, place);
    } else {
        texts->nulls++;
        size = 0;
    }
    texts->ends[place + 1] = begin + (int64_t)size;
}

static void add(Batch *batch, const Message *message) {
    int64_t place = batch->records++;
    int type = 0;
    int64_t time = rd_kafka_message_timestamp(message, &type);
    batch->offsets[place] = message->offset;
    if (type && time != -1) {
        batch->times[place] = time;
        set_bit(batch->times_valid, place);
    } else {
        type = 0;
        batch->no_times++;
    }
    batch->time_types[place] = (int8_t)(type - 1);
    add_text(&batch->keys, place, message->key, message->key_size);
    add_text(&batch->values, place, message->value, message->value_size);
}

static int take(Batch *batch, const Message *message) {
    void *headers;
    if (message->partition != batch->partition || strcmp(rd_kafka_topic_name(message->topic), batch->topic))
        return EMPTY; /* left behind by an earlier assignment */
    if (message->error == PARTITION_END)
        return message->offset >= batch->end ? ENDED : EMPTY;
    if (message->error) {
        batch->error = message->error;
        return FAILED;
    }
    if (message->offset < batch->next)
        return OUT_OF_ORDER;
    if (batch->first_epoch < 0)
        batch->first_epoch = rd_kafka_message_leader_epoch(message);
    if (message->offset >= batch->end) {
        batch->end_epoch = rd_kafka_message_leader_epoch(message);
        return ENDED;
    }
    if (rd_kafka_message_headers(message, &headers) != NO_SUCH_ENTRY)
        return HAS_HEADERS;
    batch->needed_bytes = (int64_t)(message->key_size + message->value_size);
    if (batch->records == batch->most_records || batch->keys.ends[batch->records] +
            batch->values.ends[batch->records] + batch->needed_bytes > batch->most_bytes)
        return FULL;
    add(batch, message);
    batch->next = message->offset + 1;
    return EMPTY;
}

/* Wait for a message and hold it, with those that are there already. */
static int hold(void *queue, Batch *batch, int timeout_ms) {
    Message *first = rd_kafka_consume_queue(queue, timeout_ms);
    batch->held_at = batch->held_count = 0;
    if (!first)
        return 0;
    batch->held[0] = first;
    ssize_t more = rd_kafka_consume_batch_queue(queue, 0, batch->held + 1, MOST_AT_ONCE - 1);
    batch->held_count = 1 + (more > 0 ? more : 0);
    return 1;
}

/* Return EMPTY after the time-out without a message; FULL when the next message, which is held, has no room; ENDED when
 * a record or an event at or past the end was seen; or what cannot be read here. */
int fill(void *queue, Batch *batch, int timeout_ms) {
    for (;;) {
        while (batch->held_at < batch->held_count) {
            int found = take(batch, batch->held[batch->held_at]);
            if (found == FULL)
                return FULL;
            rd_kafka_message_destroy(batch->held[batch->held_at++]);
            if (found != EMPTY)
                return found;
        }
        if (!hold(queue, batch, timeout_ms))
            return EMPTY;
    }
}

/* Throw away what is held and what was fetched ahead. */
void leave(void *queue, Batch *batch) {
    do {
        while (batch->held_at < batch->held_count)
            rd_kafka_message_destroy(batch->held[batch->held_at++]);
    } while (hold(queue, batch, 0));
}

/* Throw records away until the partition's end: what librdkafka itself costs, whoever calls it. Return their number. */
int64_t discard(void *queue, Batch *batch, int timeout_ms) {
    int64_t records = 0, ended = 0;
    while (!ended && hold(queue, batch, timeout_ms))
        while (batch->held_at < batch->held_count) {
            Message *message = batch->held[batch->held_at++];
            records += message->error == 0;
            ended |= message->error == PARTITION_END;
            rd_kafka_message_destroy(message);
        }
    return records;
}
