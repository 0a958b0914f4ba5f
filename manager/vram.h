/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experts in the memory of GPUs: what the rest of the manager knows of it. What is shared with clients is in shm/vram.h, the
 * driver in gpu/, who should lie there in policy/tier.h; here it is opened, filled, emptied and told of. VRAM holds copies:
 * of what is in RAM, or was. So nothing of it is ever written back, and all of it may be lost. Core thread only.
 *
 *   vram.c           opening, the turn, closing          vram_place.c   what the policy wants there, and its uploads
 *   vram_settings.c  checked before anything is opened   vram_evict.c   who goes
 *   vram_device.c    budgets, and a device that is lost  vram_report.c  what people see
 *   vram_arena.c     memory of the driver                vram_check.c   --check
 *   vram_table.c     a model on a device: directory      vram_session.c a client's ledgers, and what it leaves behind
 *   control_vram.c   set vram                            vram_trust.c   who may have them
 *
 * After a restart nothing is adopted (R29): device memory dies with its process. Segments are not stored; a client finds
 * the exporter dead and opens anew.
 */
#ifndef CNRE_MANAGER_VRAM_H
#define CNRE_MANAGER_VRAM_H

#include "manager/manager.h"

#define VRAM_MESSAGE_BYTES 256u

struct json_t;
struct metrics_snapshot;
struct session;
struct settings;
struct vram;

/* "40G", "0" (devices are opened, and a budget may be set later) or "auto". 0 or -EINVAL with one line. */
struct vram_request {
	uint64_t budget_bytes;            /* of each device */
	int is_auto;
	const char *uuid[16];             /* point into `text` */
	uint32_t uuid_count;              /* 0: all */
	char text[1024];
};
int vram_settings_parse(const struct settings *settings, struct vram_request *ret_request, char message[VRAM_MESSAGE_BYTES]);

/* What to do where GPUs do not open for `error`, to be put behind the reason; "" where nothing else would start. */
const char *vram_settings_hint(const struct vram_request *request, int error);
/* Of the machine's memory, for uploads: the experts' budget leaves it alone. */
uint64_t vram_claim_bytes(const struct settings *settings);
/* What was set and has no effect, as a line for people; NULL: nothing. */
const char *vram_settings_unused(const struct settings *settings);

/*
 * After residency and pool, before the first client. 0, also where there is no --vram, or it is auto and no GPU serves; or
 * -errno with one line. For a successor nothing of it is a reason not to start: it serves from RAM, and says so.
 */
int vram_open(struct manager *manager, char message[VRAM_MESSAGE_BYTES]);
/*
 * When no client is left, before residency closes: an upload under way reads its slabs. 0, or -ETIMEDOUT: a device does not
 * answer; then the process must end by _exit, and no memory may go before it.
 */
int vram_close(struct manager *manager);

/* One turn. 1: there is more to do at once. */
int vram_turn(struct manager *manager);
int64_t vram_deadline_ns(const struct manager *manager);

/* VRAM_OPEN of a client: 1 answered, 0 another message, or -errno: hang up. */
int vram_answer(struct session *session, const void *buffer, int received_bytes);
/*
 * A session ends, whatever became of its process. Its ledgers go on counting until the driver can have no kernel of it any
 * more that reads there (vram_session.c).
 */
void vram_end_session(struct session *session);
/* How many accesses of an object in VRAM the session counted; *leased grows by 1 if it holds it there. */
uint64_t vram_accesses(const struct session *session, uint32_t object, uint32_t *leased);
uint32_t vram_ledgers(const struct session *session); /* that are added up by that */

/* What clients did, from their logs. Every lookup, wherever it was served: what is hot in RAM is what goes to VRAM. */
void vram_visit(struct manager *manager, const struct served_model *model, uint32_t layer, uint32_t token_count);
void vram_access(struct session *session, uint32_t owner, int was_in_vram);
void vram_arrived(struct manager *manager, uint32_t owner); /* READY in RAM: who missed it is told of now */
void vram_tokens(struct session *session, uint32_t token_count);

/* An object's bytes were found damaged in RAM: its copy may be of these, so it goes, as soon as nobody holds it. */
void vram_suspect(struct manager *manager, uint32_t owner);

#define VRAM_BUDGET_MAX (1ull << 50)      /* of a device; what all have together is counted in 64 bits */
/* `set vram`, for each device: at once, or as leases and clients let go. 0, 1 some is still held, -ENOTSUP there is no tier. */
int vram_set_budget(struct manager *manager, uint64_t bytes);

/* ---- for people ---- */

struct json_t *vram_report(struct manager *manager); /* the tier in status; what there is if there is none */
void vram_report_degraded(const struct manager *manager, void (*add)(struct json_t *list, const char *what, const char *advice),
			  struct json_t *list);
struct json_t *vram_report_object(struct manager *manager, uint32_t owner); /* of `why`; null: there is no tier */
/* 'v' READY, 'u' being uploaded, '.' not there; devices are told by the number, below 0: in none. */
int vram_device_of(const struct manager *manager, uint32_t owner);
void vram_collect(struct manager *manager, struct metrics_snapshot *snapshot);
/* --check: what would be done with GPUs, in lines, and what would stop the start. 0 or -errno. */
int vram_check(const struct settings *settings, void (*say)(const char *line));

#endif
