/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mirrors: directories on other drives with copies of shards, of all or of some. A copy is used when it has been proven
 * (mirror_check.h), and no start waits for that: each mirror has a thread that compares shard after shard while the manager
 * serves from the primaries, so a mirror that does not answer delays nobody. What is refused is said once, stays with the
 * primary, and stands in status.
 *
 * A successor after a death proves everything anew: the files may have changed, and it costs nobody's time.
 * Core thread only; the threads touch what their job names.
 */
#ifndef CNRE_MANAGER_MIRROR_H
#define CNRE_MANAGER_MIRROR_H

#include <stdint.h>

#define MIRROR_ANSWER_NS 30000000000ll    /* without any progress a mirror is said not to answer */
#define MIRROR_LOOK_NS 5000000000ll       /* between two looks at that */
#define MIRROR_STOP_NS 1000000000ll       /* what a stop waits for a thread; then it goes with the process */
#define MIRROR_REFUSALS_SHOWN 8u          /* of each mirror by name, in log and status; the rest is counted */

struct manager;
struct mirrors;
struct settings_list;

struct mirror_status {
	const char *directory;
	const char *fault;                /* why nothing of it can be used; "" */
	uint32_t shards;                  /* of all models, with experts in them */
	uint32_t waiting, proven, refused, absent; /* their sum */
	uint32_t on_same_disk;            /* of the proven: they make nothing faster */
	uint64_t bytes, bytes_of;         /* of experts: in the proven shards, in all */
	int is_silent;                    /* does not answer at this time */
	uint32_t refusals;                /* that have words below */
	const char *reason[MIRROR_REFUSALS_SHOWN], *advice[MIRROR_REFUSALS_SHOWN];
};

/*
 * Begins to check; without any directory there is nothing. With a loader each proven copy becomes a file of its shard
 * (served_model.files_of_shard), without one (--check) it is counted only. 0 or -errno; manager->mirrors on success only.
 */
int mirror_open(struct manager *manager, const struct settings_list *directories);
void mirror_close(struct manager *manager);

/* Once a turn: whether they answer. */
void mirror_tick(struct manager *manager, int64_t now_ns);
int64_t mirror_deadline_ns(const struct manager *manager);

/* Waits until all is checked, or what is left does not answer. For --check, which has no loop. */
void mirror_wait(struct manager *manager);

uint32_t mirror_count(const struct manager *manager);
void mirror_get_status(const struct manager *manager, uint32_t mirror, struct mirror_status *ret_status);

/* For status: a list of them, and what of it is worth a line of health. */
struct json_t;
struct json_t *mirror_report(const struct manager *manager);
void mirror_report_degraded(const struct manager *manager, void (*add)(struct json_t *list, const char *what, const char *advice),
			    struct json_t *list);

#endif
