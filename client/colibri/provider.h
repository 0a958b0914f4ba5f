/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine of Colibri's kind calls to take its experts from CNRE: a block of experts of one layer, a view of each in
 * the form that such an engine computes with, and the end of the block. doc/integrating.md says, engine by engine, where
 * the calls go. Plain C over <cnre/cnre.h>; an engine compiles provider.c and format.c with its own sources.
 *
 * The bytes are shared and read-only: never freed, never written, packed in place, shrunk, locked into memory or swapped
 * into a slot that owns its memory. They stay where they are until the release of their block.
 */
#ifndef CNRE_COLIBRI_PROVIDER_H
#define CNRE_COLIBRI_PROVIDER_H

#include <cnre/cnre.h>

#define CNRE_COLIBRI_BLOCK_MAX 64u        /* experts of one block; Colibri's engines work in blocks of 64 */

struct cnre_colibri;                      /* one per process and model; every call but close is thread-safe */
struct cnre_colibri_block;                /* used by one thread at a time, but for views of different indices */

struct cnre_colibri_setup {
	const char *model;                /* checkpoint directory */
	const char *name;                 /* of the engine, for cnrectl; NULL: program name */
	uint32_t lease_count;             /* experts it may hold at once; 0: a block and top_k, or what there is room for */
	uint32_t is_chosen;               /* 1: wanted without COLI_CACHE=cnre, which another switch said */
	uint64_t private_bytes;           /* what the engine itself will use: left free by a manager that is started now */
};

/* One matrix as Colibri's quantised tensors describe it: O rows, I columns. */
struct cnre_colibri_matrix {
	const void *data, *scales;        /* scales NULL: the format has none */
	uint64_t data_bytes, scale_bytes;
	uint32_t rows, columns;           /* O and I, in weights */
	int format;                       /* ordinal of the format table in doc/integrating.md: 0 f32, 1 int8 row, 2 int4 row … */
	uint32_t group;                   /* columns that one scale covers, in formats with groups; else 0 */
};

struct cnre_colibri_view {
	uint32_t layer, expert;
	uint32_t was_resident;            /* 1: no wait and no read, as a hit of the engine's own cache */
	struct cnre_colibri_matrix gate, up, down;
};

struct cnre_colibri_stats {
	uint64_t requests, hits, misses, joins, prefetched, prefetch_hits, bytes_read, wait_ns, resident_bytes, capacity_bytes;
};

/*
 * cnre_colibri_open - attach, if CNRE is wanted
 *
 * Wanted is COLI_CACHE=cnre; without it the engine keeps its own cache. COLI_CNRE_SOCKET names the manager (without it
 * as cnre_attach finds one), COLI_CACHE_POLICY=NAME asks it for a policy, and where that is refused so is the open.
 *
 * @message  on failure one line for people; may be NULL with message_bytes 0
 *
 * Returns:  1 attached, 0 not wanted (*ret_shim is untouched), or an error of cnre_attach or cnre_set_policy, -ENOMEM, or
 *           -ENOTSUP for experts whose format no engine of Colibri computes with
 * Owns:     the shim, until cnre_colibri_close.
 */
int cnre_colibri_open(struct cnre_colibri **ret_shim, const struct cnre_colibri_setup *setup, char *message, size_t message_bytes);

/* Releases nothing: no block may be held. NULL is fine. */
void cnre_colibri_close(struct cnre_colibri *shim);

/* Different experts that a block may have: CNRE_COLIBRI_BLOCK_MAX, or less in a small pool. Cut blocks accordingly. */
uint32_t cnre_colibri_block_max(const struct cnre_colibri *shim);

/* What lies below, for what this header does not offer. The shim's until close. */
struct cnre *cnre_colibri_client(struct cnre_colibri *shim);

/*
 * cnre_colibri_acquire - ask for the experts of one block
 *
 * All reads are on their way when this returns. Order is the caller's, and so is the sum's: ask for the views in the
 * order in which the engine has always added.
 *
 * @experts      ids as the router gives them; duplicates are allowed
 * @token_count  rows that the block stands for: 1 in decode, the rows of the union in a prefill
 *
 * Returns:  0, or -E2BIG (more than CNRE_COLIBRI_BLOCK_MAX), -ENOSPC (more different ones than cnre_colibri_block_max),
 *           -ENOENT (no such layer or expert), -EINVAL, -ENOMEM, -ECHILD
 * Owns:     the block, until cnre_colibri_release. A thread that holds one may have to wait for ever for another one:
 *           release first, unless both together are within cnre_colibri_block_max.
 */
int cnre_colibri_acquire(struct cnre_colibri *shim, int layer, const int *experts, int count, int token_count,
			 struct cnre_colibri_block **ret_block);

/*
 * cnre_colibri_view - the expert at an index of the block, as soon as it can be read
 *
 * Asked again it is the same view. Pressure from other processes makes it wait and never fail.
 *
 * Returns:  0, or -EIO, -EBADMSG, -EPIPE (see cnre_batch_wait), -ENOTSUP (its format), -EINVAL, -ECHILD. After a failure
 *           the others go on; the engine may read this one by itself.
 */
int cnre_colibri_view(struct cnre_colibri_block *block, int index, struct cnre_colibri_view *ret_view);

/* When the block is computed: all leases go back, and every pointer of its views is void. NULL is fine. */
void cnre_colibri_release(struct cnre_colibri_block *block);

/* Advice, as cnre_prefetch: how many were accepted; 0 for what makes no sense. */
int cnre_colibri_prefetch(struct cnre_colibri *shim, int layer, const int *experts, int count);

/* 0, or -ECHILD. */
int cnre_colibri_stats(const struct cnre_colibri *shim, struct cnre_colibri_stats *ret_stats);

/* 1: b begins where a ends, so that both are one matrix of a.rows + b.rows rows (a fused gate and up). */
int cnre_colibri_are_one(const struct cnre_colibri_matrix *a, const struct cnre_colibri_matrix *b);

/* ---- format.c ---- */

/* The view of an expert that was leased, or of one that was only described (data NULL). 0, or -ENOTSUP. */
int cnre_colibri_describe(const struct cnre_expert *expert, struct cnre_colibri_view *ret_view);

/* The text of an error of this header, with what to do; for the engine's own message. */
const char *cnre_colibri_explain(int error);

#endif
