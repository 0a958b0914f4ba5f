/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The soak: a real manager, honest clients as processes of their own, and whoever kills, stops and squeezes them. What
 * must hold all the time: no call of a client fails and no leased byte is wrong. What must hold in the end: nothing is
 * lost and nothing was read twice that did not have to be. Clients report through one mapping that all processes share.
 */
#ifndef CNRE_TESTS_SOAK_H
#define CNRE_TESTS_SOAK_H

#include "tests/support/daemon.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#define SOAK_CLIENTS_MAX 240u /* a manager takes 256 by default */
#define SOAK_THREADS_MAX 16u
#define SOAK_BATCH 6u                     /* experts one thread asks for at once */
#define SOAK_STALL_NS (60 * 1000000000LL) /* a client in which no call returns for so long stands still */
#define SOAK_MANAGER_LIFE_NS (500 * 1000000LL) /* long enough to be served by each */
#define SOAK_NS_PER_S 1000000000LL

struct soak_options {
	uint32_t seconds, clients, threads, experts, seed;
	uint32_t kill_clients, kill_managers, stop_clients, stop_managers, set_ram; /* so many in the whole time */
	int fits;                         /* the budget holds everything: then nothing may be read twice */
	int verbose;
	const char *json;                 /* file for the results, or NULL */
	const char *manager[16];          /* more arguments of the manager */
	uint32_t manager_count;
};

int soak_options_parse(struct soak_options *options, int argc, char **argv); /* 0, 1 help was printed, -1 usage */

/* ---- what clients count ---- */

enum soak_count {
	SOAK_ACCESSES,      /* lookups: what the manager's counter must come to */
	SOAK_LEASES, SOAK_HITS, SOAK_EMPTY_POLLS, SOAK_BATCHES, SOAK_PREFETCHES, SOAK_SESSIONS,
	SOAK_ATTACH_RETRIES, /* -ENOSPC while the manager has not yet seen that a killed client is dead */
	SOAK_COMPARED_BYTES, SOAK_COMPARISONS, SOAK_WAIT_NS, SOAK_LONGEST_WAIT_NS,
	SOAK_FAILURES, SOAK_WRONG,
	SOAK_COUNTS
};

struct soak_slot { /* one client process after the other */
	_Atomic uint64_t count[SOAK_COUNTS];
	_Atomic uint64_t calls;           /* returned; stands still if the client does */
	_Atomic int problem;              /* 1: the text below is complete */
	char text[160];                   /* the first failure or wrong byte */
};

struct soak_shared {
	_Atomic int stop;
	struct soak_slot slot[SOAK_CLIENTS_MAX];
};

struct soak_model {
	uint32_t layers, experts;         /* experts of a layer */
	uint64_t slab_bytes;
};

struct soak_client {
	const struct soak_options *options;
	const struct soak_model *model;
	const char *directory, *socket;
	struct soak_shared *shared;
	uint32_t slot, seed;
};

/* The body of a client process: 0, or 1 when something failed (the slot says what). */
int soak_client_run(const struct soak_client *client);

static inline void soak_add(struct soak_slot *slot, enum soak_count which, uint64_t value)
{
	(void)atomic_fetch_add_explicit(&slot->count[which], value, memory_order_relaxed); /* a statistic */
}

static inline uint64_t soak_get(const struct soak_slot *slot, enum soak_count which)
{
	return atomic_load_explicit(&slot->count[which], memory_order_relaxed); /* as soak_add */
}

static inline uint32_t soak_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

/* ---- the run ---- */

struct soak_process {
	pid_t pid;                        /* 0: none */
	uint32_t incarnation;
	int was_killed;                   /* by us: its end is no failure */
	int64_t continue_ns;              /* not 0: stopped until then */
	int64_t moved_ns;                 /* when its count of calls last changed */
	uint64_t calls;
};

struct soak {
	struct soak_options options;
	struct soak_model model;
	struct daemon daemon;
	struct soak_shared *shared;
	struct soak_process client[SOAK_CLIENTS_MAX];
	uint64_t budget_bytes, low_budget_bytes;
	int64_t start_ns, end_ns;
	uint32_t seed;
	uint32_t clients_killed, managers_killed, clients_stopped, managers_stopped, budgets_set, budgets_refused;
	uint32_t ended_badly;             /* clients that ended by themselves, or stood still */
	char ended_text[160];
	long long base_fds, base_keeper_fds, base_anonymous_bytes;
	uint64_t retired_accesses;
	json_t *stats;                    /* the last answer */
	uint32_t problems;                /* checks that failed */
	json_t *checks;
};

uint64_t soak_sum(const struct soak *soak, enum soak_count which);
int soak_set_ram(struct soak *soak, uint64_t bytes); /* exit status of cnrectl */

/* killers.c: one look at the time; kills, stops or squeezes what is due. */
void soak_killers_turn(struct soak *soak, int64_t now_ns);
void soak_continue_all(struct soak *soak);

/* checks.c */
void soak_note_baseline(struct soak *soak);
void soak_check_all(struct soak *soak); /* after every client has ended; counts soak->problems */
int soak_is_quiet(const json_t *stats); /* nobody attached, nothing leased, nothing on its way */

#endif
