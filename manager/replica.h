/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which replica serves which bytes of an object: the division of one object's plan over the drives that hold its shards.
 * Pure: no I/O, no clock, no allocation; the same arguments give the same answer. Who is well and how fast it is comes
 * from drive.h, as a rank and a weight of each replica.
 *
 * A small object goes whole to one drive, chosen by a low-discrepancy sequence over (layer, expert), so that any regular
 * set of experts (the first eight of every layer) falls on the drives as their weights say. A large one is cut into one
 * contiguous interval a drive, sizes by weight; the order of the drives rotates from object to object.
 */
#ifndef CNRE_MANAGER_REPLICA_H
#define CNRE_MANAGER_REPLICA_H

#include "manager/loader.h"
#include "model/catalog.h"

#include <stdint.h>

#define REPLICA_WHOLE_BELOW_BYTES (4u << 20)  /* smaller objects are not cut: a second drive's latency costs what it saves */
#define REPLICA_STRIPE_BYTES_MIN (1u << 20)   /* no interval is smaller: it would be all seek */
#define REPLICA_PARTS_MAX LOADER_DRIVES_MAX   /* reads of one object: one a drive */
#define REPLICA_BALANCE_ROUNDS 64u            /* of replica_balance */
#define REPLICA_LEAN_MAX 2.0                  /* how far a weight leaves its drive's speed for the sake of balance */
#define REPLICA_GROUPS_MAX 64u

/* How well a replica serves now. Of one shard only those of the best rank are used. */
enum replica_rank {
	REPLICA_GOOD,
	REPLICA_SPARE,    /* so slow that it would hold the others up, or the same drive once more */
	REPLICA_DEGRADED, /* it failed lately */
	REPLICA_FAILED,   /* its drive failed under this very object */
	REPLICA_HANGS,    /* its drive does not answer: nothing is sent there */
	REPLICA_OUT,      /* its own bytes failed under this very object */
};

struct replica_option {
	uint32_t file, drive;
	enum replica_rank rank;
	double weight;                        /* beside those of the other options; counts where the rank is REPLICA_GOOD */
};

struct replica_options {                      /* the files with one shard's bytes */
	uint32_t count;
	struct replica_option option[LOADER_REPLICAS_MAX];
};

struct replica_run {
	uint32_t run, file;                   /* which of the plan's */
	uint64_t off, bytes, needed_bytes;    /* off: in the plan's run; multiples of 4096 but for needed_bytes */
};

struct replica_part {                         /* what one drive reads */
	uint32_t drive, run_count;
	uint64_t bytes;
	struct replica_run run[LOADER_RUNS_MAX];
};

struct replica_split {
	enum replica_rank rank;               /* the worst that had to be used */
	uint32_t part_count;
	struct replica_part part[REPLICA_PARTS_MAX];
};

/* 0 <= ticket < 1, of an object for good. */
double replica_ticket(uint32_t layer, uint32_t expert);

/*
 * replica_split - divides an object
 *
 * @options   one for each run of the plan
 *
 * Returns:  0; -EAGAIN: some run has only replicas whose drives do not answer; -EIO: some run has no replica left.
 *           *ret_split is set on success only.
 */
int replica_split(const struct model_plan *plan, const struct replica_options *options, double ticket,
		  struct replica_split *ret_split);

/*
 * Weights with which the drives are busy for equal times, though not every drive holds every shard: a mirror of the hot
 * shards alone is leaned on where it can help. Speeds are of any unit; a drive of speed 0 takes part in nothing and has
 * weight 0.
 */
struct replica_group {                        /* the shards that lie on the same drives */
	uint32_t drives;                      /* bit by drive */
	double bytes;                         /* read from them, in any unit */
};
void replica_balance(const struct replica_group *group, uint32_t group_count, const double speed[LOADER_DRIVES_MAX],
		     double ret_weight[LOADER_DRIVES_MAX]);

#endif
