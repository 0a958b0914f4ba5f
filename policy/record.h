/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binary trace: what the policy was told, in order, as the manager writes it and the simulator reads it. Pure: bytes
 * in, bytes out. A file is a header, then records; integers are LEB128 in its shortest form, objects are numbers within
 * the geometry: layer after layer.
 *
 *	header   "CNRETRC1", layer count, per layer: checkpoint number, experts, resident bytes, read bytes of one expert,
 *	         budget in bytes, top-k (0: unknown), name of the policy, residents at the start in the order in which a
 *	         successor is to be told of them
 *	record   a tag of RECORD_TAG_BITS and the client's number in one integer, then by tag:
 *	         VISIT layer, tokens      ACCESS object, whether it was a hit      TOKEN tokens
 *	         WAIT layer, physical misses, microseconds      LOST how many words were lost here
 *	         A converted trace knows tokens: a VISIT of one token, then one of 0 tokens for each further row of the same visit
 *	end      END and the number of records before it, so that a cut file is seen
 */
#ifndef CNRE_POLICY_RECORD_H
#define CNRE_POLICY_RECORD_H

#include <stddef.h>
#include <stdint.h>

#define RECORD_MAGIC "CNRETRC1"
#define RECORD_TAG_BITS 3u
#define RECORD_BYTES_MAX 64u         /* of one encoded record */
#define RECORD_LAYERS_MAX 4096u
#define RECORD_OBJECTS_MAX (1u << 24)
#define RECORD_NAME_BYTES_MAX 32u

enum record_kind { RECORD_END, RECORD_VISIT, RECORD_ACCESS, RECORD_TOKEN, RECORD_WAIT, RECORD_LOST };

struct record {
	enum record_kind kind;
	uint32_t client;
	uint64_t a, b, c;            /* as listed above, in that order; unused: 0 */
};

struct record_layer {
	uint32_t number;             /* in the checkpoint */
	uint32_t experts;
	uint64_t resident_bytes, read_bytes;
};

struct record_header {
	uint32_t layer_count, top_k, resident_count;
	uint64_t budget_bytes;
	char policy[RECORD_NAME_BYTES_MAX]; /* printable, and a NUL */
	struct record_layer *layer;  /* [layer_count] */
	uint32_t *resident;          /* [resident_count] */
};

/* Bytes written, at most RECORD_BYTES_MAX. */
size_t record_put(unsigned char *to, const struct record *record);
/* Bytes read; 0: the buffer ends within the record; -EBADMSG: no record. The numbers are unchecked input but for their size. */
long record_get(const unsigned char *from, size_t bytes, struct record *ret_record);

/* The encoded header in memory of its own (free), and its size. 0, -EINVAL (the reader would refuse it) or -ENOMEM. */
int record_put_header(const struct record_header *header, unsigned char **ret_bytes, size_t *ret_size);
/*
 * Bytes read; 0: more are needed; -EBADMSG: not a trace, or numbers beyond the limits or each other; -ENOMEM. What it
 * allocates, a few times the bytes given at most, is given back by record_free_header. Of what was read, a policy can be
 * made: there are objects, those with bytes, all bytes together are a number, and no resident is named twice.
 */
long record_get_header(const unsigned char *from, size_t bytes, struct record_header *ret_header);
void record_free_header(struct record_header *header);

#endif
