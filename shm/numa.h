/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On which NUMA nodes shared memory lies: the plain system calls, since libnuma has no place in a library inside every
 * engine. Knows nothing of what the memory is for; which kind of segment gets which policy is its maker's decision.
 */
#ifndef CNRE_SHM_NUMA_H
#define CNRE_SHM_NUMA_H

#include <stdint.h>

#define CNRE_NUMA_NODES_MAX 1024u /* as many as Linux knows on any machine */

/* Besides the number of a node: where a segment's pages shall come from. */
enum {
	CNRE_NUMA_DEFAULT = -1,    /* no policy of its own: the policy of the thread that touches it first */
	CNRE_NUMA_INTERLEAVE = -2, /* in turn from every node whose memory this process may use */
};

#define CNRE_NUMA_WORD_BITS (8u * sizeof(unsigned long))
struct cnre_numa_nodes {
	unsigned long word[CNRE_NUMA_NODES_MAX / (8 * sizeof(unsigned long))];
};

/*
 * The nodes whose memory this process may use (its cpuset; not its own policy, which numactl sets). How many, 1 at least,
 * or -errno: -ENOSYS without NUMA, -EPERM or whatever a seccomp filter says.
 */
int cnre_numa_get_nodes(struct cnre_numa_nodes *ret_nodes);
static inline int cnre_numa_has(const struct cnre_numa_nodes *nodes, uint32_t node)
{
	return node < CNRE_NUMA_NODES_MAX && (nodes->word[node / CNRE_NUMA_WORD_BITS] >> (node % CNRE_NUMA_WORD_BITS) & 1) != 0;
}

/* Whether there is only one node to choose, as far as can be seen: then a refusal of cnre_numa_place costs nothing. */
int cnre_numa_is_single(void);

/*
 * cnre_numa_place - gives a shared mapping, whole, its policy; it holds for every process that maps the same file
 *
 * @numa_node  a node, to have every page there or none; or one of the above
 *
 * Before the first touch: what is there is not moved.
 * Returns:  0; -EINVAL (no such node, or none whose memory this process may use); -EPERM, -EACCES or -ENOSYS: the call
 *           itself is refused, by a seccomp filter or a kernel without NUMA, and the memory is as good as before.
 */
int cnre_numa_place(void *base, uint64_t bytes, int numa_node);

#endif
