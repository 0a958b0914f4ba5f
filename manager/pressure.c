/* SPDX-License-Identifier: Apache-2.0 */
/* When to give memory back, and when to take it again; see pressure.h. */
#include "manager/pressure.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "manager/loop.h"
#include "manager/manager.h"
#include "manager/pressure_watch.h"
#include "manager/residency.h"
#include "shm/layout.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* ---- arithmetic ---- */

int pressure_sign(struct pressure *pressure, int64_t now_ns)
{
	if (pressure->steps > 0) {
		pressure->last_sign_ns = now_ns;
		if (now_ns - pressure->last_step_ns < PRESSURE_STEP_NS || pressure->steps == PRESSURE_STEPS_MAX)
			return 0;
	}
	pressure->steps++;
	pressure->last_sign_ns = pressure->last_step_ns = now_ns;
	return 1;
}

void pressure_after_oom(struct pressure *pressure, int64_t now_ns)
{
	uint32_t before = pressure->steps;

	if (pressure->oom_steps > before && now_ns - pressure->oom_ns < PRESSURE_OOM_MEMORY_NS)
		before = pressure->oom_steps; /* what came back since was too much */
	pressure->steps = before + PRESSURE_STEPS_AFTER_OOM;
	if (pressure->steps > PRESSURE_STEPS_MAX)
		pressure->steps = PRESSURE_STEPS_MAX;
	pressure->oom_steps = pressure->steps;
	pressure->after_oom = 1;
	pressure->oom_ns = pressure->last_sign_ns = pressure->last_step_ns = now_ns;
}

void pressure_save(const struct pressure *pressure, struct cnre_state_pressure *state)
{
	state->oom_ns = pressure->oom_ns;
	state->oom_steps = pressure->oom_steps;
	state->after_oom = (uint32_t)pressure->after_oom;
	state->steps = pressure->steps;
}

void pressure_resume(struct pressure *pressure, const struct cnre_state_pressure *state, int64_t now_ns)
{
	*pressure = (struct pressure){.last_sign_ns = now_ns, .last_step_ns = now_ns};
	if (state->steps > PRESSURE_STEPS_MAX || state->oom_steps > PRESSURE_STEPS_MAX || state->oom_ns > now_ns)
		return;
	pressure->steps = state->steps;
	pressure->after_oom = state->steps > 0 && state->after_oom != 0;
	pressure->oom_steps = state->oom_steps;
	pressure->oom_ns = state->oom_ns;
}

int64_t pressure_calm_deadline_ns(const struct pressure *pressure)
{
	int64_t calm_ns = pressure->last_sign_ns + PRESSURE_CALM_NS;
	int64_t step_ns = pressure->last_step_ns + (pressure->after_oom ? PRESSURE_RETURN_OOM_NS : PRESSURE_RETURN_NS);

	if (pressure->steps == 0)
		return CNRE_NEVER;
	return calm_ns > step_ns ? calm_ns : step_ns;
}

int pressure_calm(struct pressure *pressure, int64_t now_ns)
{
	if (pressure->steps == 0 || now_ns < pressure_calm_deadline_ns(pressure))
		return 0;
	pressure->last_step_ns = now_ns;
	if (--pressure->steps == 0)
		pressure->after_oom = 0;
	return 1;
}

uint64_t pressure_target(const struct pressure *pressure, uint64_t budget_bytes)
{
	if (pressure->steps == 0)
		return UINT64_MAX;
	return budget_bytes - budget_bytes / PRESSURE_PARTS * pressure->steps;
}

/* Less than remembered: another cgroup, which counts from the beginning; what it counted so far is not judged. */
int pressure_kills_grew(uint64_t remembered, uint64_t kills)
{
	return remembered != 0 && kills > remembered - 1;
}

/* ---- in the manager ---- */

static struct watcher {
	struct loop_source source; /* first; the eventfd of the watch */
	struct manager *manager;
	struct pressure_watch watch;
	char kills_path[PRESSURE_PATH_BYTES]; /* "": OOM kills are not counted here */
} watcher = {.source = {.fd = -1}, .watch = {.event_fd = -1, .advice = ""}};

/* What is held is noted first: a successor that finds it has the same reason to hold it. */
static void hold(struct manager *manager)
{
	uint64_t budget_bytes = cnre_counter_get(&manager->counters->budget_bytes);

	pressure_save(&manager->pressure, &manager->state->pressure);
	residency_hold_to(manager, RESIDENCY_HOLD_PRESSURE, pressure_target(&manager->pressure, budget_bytes));
}

static void say_begin(const struct manager *manager, const char *what, const char *advice)
{
	uint64_t budget_bytes = cnre_counter_get(&manager->counters->budget_bytes);
	char kept[16];

	cnre_log(
		CNRE_LOG_WARNING,
		"memory: %s: experts are held within %s and less while this lasts, all that clients reserved is kept; %s",
		what, cnre_size_format(pressure_target(&manager->pressure, budget_bytes), kept, sizeof kept), advice);
}

static void shrink(struct loop_source *source, uint32_t events)
{
	struct manager *manager = watcher.manager;
	uint64_t signs;

	if ((events & EPOLLIN) == 0 || read(source->fd, &signs, sizeof signs) != (ssize_t)sizeof signs)
		return;
	if (!pressure_sign(&manager->pressure, cnre_clock_now_ns()))
		return;
	cnre_counter_add(&manager->counters->pressure_shrinks, 1);
	if (manager->pressure.steps == 1)
		say_begin(manager, "processes wait for memory",
			  "if it comes back often, set a lower budget (cnrectl set ram SIZE) or move something away");
	hold(manager);
}

/* A look keeps what the next incarnation compares with: what killed somebody else meanwhile is a sign, too. */
static void look_at_kills(struct manager *manager, int64_t now_ns, uint64_t *ret_kills_plus_one)
{
	uint64_t kills;

	manager->pressure.last_look_ns = now_ns;
	if (watcher.kills_path[0] != '\0' && pressure_read_kills(watcher.kills_path, &kills) == 0 && kills < UINT64_MAX)
		*ret_kills_plus_one = kills + 1;
}

/*
 * Crash note: killed before the count is stored, the successor judges the same kill again and gives up two parts more;
 * the other way round it would not know of it.
 */
static void judge_kills(struct manager *manager, int64_t now_ns)
{
	struct cnre_state_pressure *state = &manager->state->pressure;
	uint64_t kills_plus_one = state->oom_kills_plus_one;

	look_at_kills(manager, now_ns, &kills_plus_one);
	if (manager->adopted && kills_plus_one > 0 &&
	    pressure_kills_grew(state->oom_kills_plus_one, kills_plus_one - 1)) {
		pressure_after_oom(&manager->pressure, now_ns);
		cnre_counter_add(&manager->counters->pressure_shrinks, 1);
		say_begin(manager, "the kernel killed for memory in this control group since the former manager looked",
			  "set a lower budget (cnrectl set ram SIZE) or raise MemoryMax= of the slice");
		pressure_save(&manager->pressure, state);
	}
	state->oom_kills_plus_one = kills_plus_one;
}

/* An episode that the predecessor was in goes on: that it died makes no memory free. */
static void begin_or_resume(struct manager *manager)
{
	int64_t now_ns = cnre_clock_now_ns();

	pressure_resume(&manager->pressure, &manager->state->pressure, now_ns);
	if (pressure_find_kills(watcher.kills_path) < 0)
		watcher.kills_path[0] = '\0';
	judge_kills(manager, now_ns);
	if (manager->pressure.steps > 0)
		hold(manager);
}

void pressure_open(struct manager *manager)
{
	int r;

	begin_or_resume(manager);
	r = pressure_watch_open(&watcher.watch);
	watcher.manager = manager;
	watcher.source = (struct loop_source){.fd = watcher.watch.event_fd, .ready = shrink};
	if (r == 0) {
		r = loop_add(manager->loop, &watcher.source, EPOLLIN);
		if (r < 0) {
			pressure_watch_close(&watcher.watch); /* or status would name a file that wakes nobody */
			(void)snprintf(watcher.watch.reason, sizeof watcher.watch.reason, "the loop takes no more: %s",
				       strerror(-r));
			watcher.watch.advice = pressure_watch_advice(r);
		}
	}
	if (r < 0)
		cnre_log(CNRE_LOG_INFO, "memory: pressure is not watched: %s: %s", watcher.watch.reason,
			 watcher.watch.advice);
}

void pressure_close(struct manager *manager)
{
	if (watcher.watch.event_fd < 0)
		return;
	if (manager->loop != NULL)
		loop_remove(manager->loop, &watcher.source);
	watcher.source.fd = -1;
	pressure_watch_close(&watcher.watch);
}

void pressure_budget_changed(struct manager *manager)
{
	if (manager->pressure.steps > 0)
		hold(manager);
}

void pressure_tick(struct manager *manager, int64_t now_ns)
{
	if (now_ns - manager->pressure.last_look_ns >= PRESSURE_LOOK_NS)
		look_at_kills(manager, now_ns, &manager->state->pressure.oom_kills_plus_one);
	if (!pressure_calm(&manager->pressure, now_ns))
		return;
	hold(manager);
	if (manager->pressure.steps == 0)
		cnre_log(CNRE_LOG_NOTICE,
			 "memory: nobody has waited for it for a while: the whole budget is used again");
}

int64_t pressure_deadline_ns(const struct manager *manager)
{
	return pressure_calm_deadline_ns(&manager->pressure);
}

struct pressure_watched pressure_watched(void)
{
	return (struct pressure_watched){
		.path = watcher.watch.path, .reason = watcher.watch.reason, .advice = watcher.watch.advice};
}
