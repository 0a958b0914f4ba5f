/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients did, in the order of their logs, for everyone who learns from it: the policy, miss curves, felt waits, the
 * history of uses, and a trace that is being recorded. Words of a log are input and checked before they come here; what a
 * client says it waited is bounded, and moves only how much a layer's misses are thought to cost. Core thread only.
 */
#ifndef CNRE_MANAGER_FEED_H
#define CNRE_MANAGER_FEED_H

#include "manager/manager.h"
#include "manager/recorder.h"
#include "policy/curve.h"
#include "policy/tuner.h"

#include <stddef.h>
#include <stdint.h>

#define FEED_WAIT_US_MAX 60000000u  /* of one visit: more is a stopped engine, not a drive */
/*
 * Visits are the clock of policies. One counts with its first access, and no more of one client and layer than these; what it
 * accesses beyond is of the visit before. A hostile client makes others' uses look as old as that many tokens would, which may
 * bring a layer down to its floor under `cost`, and no further (doc/design.md).
 */
#define FEED_VISIT_NS 1000000       /* 1,000 a second */
#define FEED_VISITS_BURST 4096u     /* at once: logs are read after the fact */
#define FEED_CURVE_AGE_ACCESSES (1u << 20) /* of all layers; then what the curves have seen counts half */

struct feed;
struct feed_client;
struct histogram;
struct session;

/* After the models are known, before residency_open, which wants the history. 0 or -errno with one line. */
int feed_open(struct manager *manager, const char *usage_folder, char *message, size_t message_bytes);
/* Ends a recording and saves the history, in this thread: there are no workers any more. */
void feed_close(struct manager *manager);

/* [owner_count] uses of every object in the history. */
const uint32_t *feed_uses(struct manager *manager);
/* Into the history, from elsewhere: no access of this manager's clients, so no policy is told. */
void feed_add_uses(struct manager *manager, uint32_t owner, uint32_t uses);
int feed_keeps_uses(const struct manager *manager, const struct served_model *model); /* 1: in a file */

/* Announced here; begun with the first access. */
void feed_visit(struct manager *manager, struct session *session, uint32_t layer, uint32_t token_count);
enum feed_served { FEED_SERVED_BY_DRIVE, FEED_SERVED_BY_RAM, FEED_SERVED_BY_VRAM };
void feed_access(struct manager *manager, struct session *session, uint32_t object, enum feed_served served);
void feed_token_end(struct manager *manager, struct session *session, uint32_t token_count);
void feed_lost(struct manager *manager, struct session *session, uint64_t words);
struct feed_client *feed_client_close(struct feed_client *client); /* NULL is fine */

void feed_tick(struct manager *manager, int64_t now_ns);
int64_t feed_deadline_ns(const struct manager *manager);

/* Another policy took over: it is told what waits have shown. */
void feed_policy_changed(struct manager *manager);

/*
 * A recording of one model. fd: as recorder_open takes it, on success only. Returns 0; -EALREADY: one is under way;
 * -EINVAL, -ENOMEM, with one line.
 */
int feed_record(struct manager *manager, const struct served_model *model, int fd, uint64_t bytes_max, char *message,
		size_t message_bytes);
int feed_record_stop(struct manager *manager); /* 0 or -ENOENT: none is under way; feed_record_status says when it is over */
void feed_record_flush(struct manager *manager); /* what is buffered goes to the file; nothing waits for it */
enum feed_recording { FEED_RECORDING_NONE, FEED_RECORDING_ON, FEED_RECORDING_ENDING, FEED_RECORDING_OVER };
enum feed_recording feed_record_status(const struct manager *manager, struct recorder_status *ret_status);

struct feed_layer {
	uint64_t accesses, misses;   /* whose log was read; misses: not resident when looked up, joins included */
	const struct curve_distances *distances; /* of these, between experts of the layer */
	struct tuner_layer waits;    /* of visits; its misses are physical */
};
void feed_get_layer(const struct manager *manager, const struct served_model *model, uint32_t layer,
		    struct feed_layer *ret_layer);
/* What the visits of a client waited that missed; NULL: there was none yet. */
const struct histogram *feed_client_wait(const struct feed_client *client); /* NULL is fine */
uint64_t feed_tokens(const struct manager *manager); /* that clients said were done, since the manager started; input */
/* Of recent accesses, the share that would miss with so many slots in the layer; 0..1, NaN: none were seen. */
double feed_miss_share(const struct manager *manager, const struct served_model *model, uint32_t layer, uint32_t slots);

#endif
