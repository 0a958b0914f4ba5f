/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that others need more than the cache does (R32). The OOM killer gets nothing from killing the manager, since the
 * residents live on in the store and in its clients, so the manager gives memory back before: a sixteenth of the budget
 * for each sign that somebody waits for memory, and an eighth when a successor finds that its cgroup has killed, below what
 * the last such kill left if that was not long ago. Silence brings it back, one sixteenth after another, and more slowly
 * after a kill. The guarantees of clients are never touched.
 *
 * The first part is arithmetic on a struct; the rest belongs to the core thread. Not for asking the kernel: that is
 * pressure_watch.h.
 */
#ifndef CNRE_MANAGER_PRESSURE_H
#define CNRE_MANAGER_PRESSURE_H

#include <stdint.h>

#define PRESSURE_PARTS 16u /* of the budget; a step is one of them */
#define PRESSURE_STEPS_MAX (PRESSURE_PARTS - 1)
#define PRESSURE_STEPS_AFTER_OOM 2u           /* more for each OOM kill: held to 7/8, then 6/8, … */
#define PRESSURE_STEP_NS 2000000000LL         /* no step down sooner after another */
#define PRESSURE_CALM_NS 60000000000LL        /* without a sign, before anything is taken back */
#define PRESSURE_RETURN_NS 10000000000LL      /* then between two steps up */
#define PRESSURE_RETURN_OOM_NS 60000000000LL  /* the same in an episode with an OOM kill */
#define PRESSURE_OOM_MEMORY_NS 600000000000LL /* so long a kill counts: the next one goes below what it left */
#define PRESSURE_LOOK_NS 10000000000LL        /* between two looks at the OOM kills, while awake anyway */

struct pressure {
	uint32_t steps;                     /* parts of the budget that are given up; 0: no episode */
	uint32_t oom_steps;                 /* what the last OOM kill made of it; 0: none is known */
	int64_t oom_ns;                     /* when that was found */
	int after_oom;                      /* an OOM kill belongs to the episode */
	int64_t last_sign_ns, last_step_ns; /* mean something while steps > 0 */
	int64_t last_look_ns;
};

/* Somebody waits for memory. 1: a step down was made; 0: too soon after the last one, or there is no more to give. */
int pressure_sign(struct pressure *pressure, int64_t now_ns);

/* The predecessor's cgroup killed: begins an episode, or goes further down in one. */
void pressure_after_oom(struct pressure *pressure, int64_t now_ns);

/* What a successor must know of an episode; it begins the wait for calm anew. Bytes of a file of our own user: checked. */
struct cnre_state_pressure;
void pressure_save(const struct pressure *pressure, struct cnre_state_pressure *state);
void pressure_resume(struct pressure *pressure, const struct cnre_state_pressure *state, int64_t now_ns);

/* 1: it has been calm for long enough, a step up was made. */
int pressure_calm(struct pressure *pressure, int64_t now_ns);
int64_t pressure_calm_deadline_ns(const struct pressure *pressure); /* CNRE_NEVER: nothing to take back */

/* What may be resident of a budget; UINT64_MAX: all of it. */
uint64_t pressure_target(const struct pressure *pressure, uint64_t budget_bytes);

/* Whether the count of OOM kills has grown since it was remembered (plus 1; 0: it was not known). */
int pressure_kills_grew(uint64_t remembered, uint64_t kills);

/* ---- in the manager ---- */

struct manager;

/* Once everything is adopted and before anybody is served. Without a watch it says so and goes on. */
void pressure_open(struct manager *manager);
void pressure_close(struct manager *manager);
void pressure_budget_changed(struct manager *manager);

/* Once a turn. */
void pressure_tick(struct manager *manager, int64_t now_ns);
int64_t pressure_deadline_ns(const struct manager *manager);

/* The file that is watched, and why and what to do about it where none is; what does not apply is "". */
struct pressure_watched {
	const char *path, *reason, *advice;
};
struct pressure_watched pressure_watched(void);

#endif
