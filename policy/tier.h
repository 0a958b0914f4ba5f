/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which objects should lie in VRAM, on which of the devices, pure like all of policy/: no I/O, no clock, no allocation after
 * creation; the manager and the simulator run the same object files. It decides; the caller uploads, frees and publishes.
 *
 * What an object is worth there is what `cost` says, of other costs: how often it is used, times what a hit costs less in
 * VRAM than in RAM, by the bytes that the driver charges for it. An instance of `cost` of its own keeps rates and order, so
 * the policy of RAM may be any and may change. In VRAM a move costs something: it uploads. So an object takes another's
 * place only if it is worth a good deal more (hysteresis), nobody goes who has just come (least age), and so many bytes a
 * token are moved and no more (struct moves_limits). An object lies on one device at most, which is all that a directory
 * entry can say.
 *
 * The life of it, all calls from one thread:
 *
 *	a client visits a layer            tier_visit
 *	  looks an object up, hit or miss  tier_access     RAM hits are what is promoted: a warm RAM fills VRAM without a read
 *	a client ends a token              tier_tokens     bytes may move again
 *	now and then, each feed turn       tier_pass, then as long as tier_next says 1:
 *	    each move.victim[]             demoted (its VRAM freed, nothing is copied back): tier_removed.
 *	                                   One that a client leased meanwhile stays, and the move is given up
 *	    move.object, unless it is      given a place on move.device and an upload begun: tier_added, at once, not when it
 *	    POLICY_NONE                    has ended. Upload failed, or the copy is evicted from anywhere: tier_removed
 *	budgets, gains, devices            tier_set_budget, tier_set_gain, tier_lost
 *
 * What is asked for and not done costs nothing: without tier_added the object is a candidate again when it is used again.
 */
#ifndef CNRE_POLICY_TIER_H
#define CNRE_POLICY_TIER_H

#include "policy/moves.h"
#include "policy/policy.h"

#define TIER_DEVICES_MAX 16u
#define TIER_NO_DEVICE UINT32_MAX
#define TIER_CANDIDATES_MAX 256u     /* used and not in VRAM since the latest decisions; of more the latest are kept */
#define TIER_VICTIMS_MAX 16u         /* of one move */
#define TIER_VICTIM_TRIES 64u        /* looked at for one move: leased ones, those of other devices */

struct tier;

struct tier_setup {
	uint32_t object_count, layer_count;
	const uint32_t *layer_of;    /* [object_count]; ascending; read during creation only, as all arrays here */
	const uint64_t *charged_bytes_of; /* [object_count] what the driver charges for a place, > 0 */
	const float *gain_us_of_layer; /* [layer_count] what a hit in RAM costs more than one in VRAM; NULL: as bytes, as if each was uploaded */
	const uint32_t *prior_of;    /* [object_count] uses in a history, or NULL */
	uint32_t top_k;              /* of a visit; makes visits of the history */
	uint32_t device_count;       /* 1 to TIER_DEVICES_MAX; their budgets begin at 0 */
	const struct moves_limits *limits; /* NULL: tier_limits_default; all of them in visits, tokens and bytes as in moves.h */
	const struct policy_tuning *tuning; /* half_life, rate_weight and prior_weight of it; NULL: tier_tuning_default */
	/* 1: its bytes are whole in RAM now, and it may be read there for an upload. Called by tier_next only. */
	int (*can_upload)(void *context, uint32_t object);
	/* 1: it may leave VRAM now: nobody has leased it there, no upload of it is under way. Called by tier_next only. */
	int (*can_leave)(void *context, uint32_t object);
	void *context;
};

/* Measured: doc/design.md, "VRAM placement". */
void tier_limits_default(struct moves_limits *ret_limits);
void tier_tuning_default(struct policy_tuning *ret_tuning);

/* 0, -EINVAL (a setup that cannot be) or -ENOMEM. */
int tier_create(struct tier **ret_tier, const struct tier_setup *setup);
struct tier *tier_destroy(struct tier *tier); /* NULL is fine; returns NULL */

/* ---- what happens ---- */

/*
 * As policy_visit and policy_access, and of every lookup, wherever it was served from. The policy of RAM is better not told
 * of those that VRAM served: what nobody uses there makes room (doc/design.md). access is O(1).
 */
void tier_visit(struct tier *tier, uint32_t layer, uint32_t token_count);
void tier_access(struct tier *tier, uint32_t object);
/* So many tokens ended: once a token, not once a layer. Without tokens nothing moves, if bytes a token are limited. */
void tier_tokens(struct tier *tier, uint32_t tokens);

/* Its place on the device is taken, or free again. An object is on one device at most; removed must be there. */
void tier_added(struct tier *tier, uint32_t object, uint32_t device);
void tier_removed(struct tier *tier, uint32_t object);
/* Everything on it is gone, and its budget is 0. */
void tier_lost(struct tier *tier, uint32_t device);

/* Charged bytes of places. Below what is there: tier_next names who goes. */
void tier_set_budget(struct tier *tier, uint32_t device, uint64_t budget_bytes);
/*
 * Gains compare with each other: set those of all layers, or none. One that is no number or below 0 is not taken. 0:
 * nothing of the layer is promoted, and what is there goes first.
 */
void tier_set_gain(struct tier *tier, uint32_t layer, float gain_us);

/* ---- decisions ---- */

struct tier_move {
	uint32_t object;             /* to be uploaded; POLICY_NONE: none, the device is over its budget */
	uint32_t device;
	uint32_t victim_count;       /* demote these first; all of that device, worst first */
	uint32_t victim[TIER_VICTIMS_MAX];
};

/* A pass begins: limits->moves_per_pass are allowed again. */
void tier_pass(struct tier *tier);
/*
 * 1: a move that pays now; 0: none. First devices above their budget are relieved. Then the candidate that is worth most
 * goes where there is room (most of it), else where those stand that are worth least. Where none pays, all candidates are
 * forgotten until they are used again; where only the bytes of this token are spent, they are kept. Bounded by the three
 * numbers above: some microseconds.
 */
int tier_next(struct tier *tier, struct tier_move *ret_move);

/* ---- for people ---- */

struct tier_device {
	uint64_t budget_bytes, used_bytes;
	uint32_t object_count;
};
void tier_get_device(const struct tier *tier, uint32_t device, struct tier_device *ret_device);
uint32_t tier_device_of(const struct tier *tier, uint32_t object); /* TIER_NO_DEVICE: it is in none */
/* Its worth in VRAM, on the scale of all objects of this tier: higher stays longer. */
double tier_worth(const struct tier *tier, uint32_t object);

#define TIER_FACTS_MAX (POLICY_FACTS_MAX + 4u)
/* What its decisions about the object are made of, under stable names (doc/man/cnrectl.1); how many. Changes nothing. */
uint32_t tier_describe(const struct tier *tier, uint32_t object, struct policy_fact ret_fact[TIER_FACTS_MAX]);

#endif
