/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a move between tiers may happen now: hysteresis, minimum age of the victim, minimum interval between moves of
 * one object, bytes moved a token, and moves in one pass. For moves that cost something of their own; in RAM the bytes
 * have been read anyway, and strict admission there costs more misses than it saves.
 */
#ifndef CNRE_POLICY_MOVES_H
#define CNRE_POLICY_MOVES_H

#include "policy/policy.h"

struct moves_limits {                /* 0 turns each of them off */
	float hysteresis;
	uint32_t min_age_visits;     /* of the victim, since it moved in, in visits of its layer */
	uint32_t min_interval_visits; /* from an object's last move, in or out, until it may move in */
	uint64_t bytes_per_token;    /* in the mean: one move may go beyond what is left, and the next ones wait for it */
	uint32_t moves_per_pass;
};

struct moves;

int moves_create(struct moves **ret_moves, const struct policy *policy, uint32_t object_count,
		 const struct moves_limits *limits); /* 0 or -ENOMEM; the policy must outlive it */
struct moves *moves_destroy(struct moves *moves);
void moves_tokens(struct moves *moves, uint32_t tokens); /* the byte budget grows by that much; unused: one token's at most */
void moves_pass(struct moves *moves);                    /* a pass of placement begins */
/* The limits are looked at in this order, and the first that forbids it answers. */
enum moves_answer { MOVES_ALLOWED, MOVES_TOO_YOUNG, MOVES_TOO_SOON, MOVES_NOT_WORTH, MOVES_NO_BYTES, MOVES_NO_MORE };
/* victim: POLICY_NONE where there is room. */
enum moves_answer moves_ask(const struct moves *moves, uint32_t object, uint32_t victim, uint64_t bytes);
void moves_done(struct moves *moves, uint32_t object, uint32_t victim, uint64_t bytes);
/* It went, and nothing came for it: no pass and no bytes are charged. */
void moves_gone(struct moves *moves, uint32_t object);

#endif
