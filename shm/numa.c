/* SPDX-License-Identifier: Apache-2.0 */
/* Policies for mappings by the plain system calls; see numa.h. */
#include "shm/numa.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int cnre_numa_get_nodes(struct cnre_numa_nodes *ret_nodes)
{
	struct cnre_numa_nodes nodes = {{0}};
	int count = 0;

	if (syscall(SYS_get_mempolicy, NULL, nodes.word, (unsigned long)CNRE_NUMA_NODES_MAX, NULL,
		    (unsigned long)MPOL_F_MEMS_ALLOWED) < 0)
		return -errno;
	for (uint32_t node = 0; node < CNRE_NUMA_NODES_MAX; node++)
		count += cnre_numa_has(&nodes, node);
	if (count == 0)
		return -ENOSYS;
	*ret_nodes = nodes;
	return count;
}

/* Without the system call: "0", or a list such as "0-1,4". */
static int has_memory_on_one_node(void)
{
	char text[256];
	int fd = open("/sys/devices/system/node/has_memory", O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return errno == ENOENT; /* a kernel without NUMA */
	got = read(fd, text, sizeof text - 1);
	(void)close(fd);
	if (got <= 0)
		return 0;
	text[got] = '\0';
	return strpbrk(text, ",-") == NULL;
}

int cnre_numa_is_single(void)
{
	struct cnre_numa_nodes nodes;
	int count = cnre_numa_get_nodes(&nodes);

	return count < 0 ? has_memory_on_one_node() : count == 1;
}

int cnre_numa_place(void *base, uint64_t bytes, int numa_node)
{
	struct cnre_numa_nodes nodes = {{0}};
	int mode = MPOL_BIND;
	int r;

	if (numa_node == CNRE_NUMA_DEFAULT)
		return 0;
	if (numa_node == CNRE_NUMA_INTERLEAVE) {
		mode = MPOL_INTERLEAVE;
		r = cnre_numa_get_nodes(&nodes);
		if (r < 0)
			return r;
	} else if (numa_node >= 0 && (uint32_t)numa_node < CNRE_NUMA_NODES_MAX) {
		uint32_t node = (uint32_t)numa_node;

		nodes.word[node / CNRE_NUMA_WORD_BITS] = 1ul << (node % CNRE_NUMA_WORD_BITS);
	} else {
		return -EINVAL;
	}
	/* One more than there are: the kernel reads a mask of maxnode - 1 bits. */
	if (syscall(SYS_mbind, base, bytes, mode, nodes.word, (unsigned long)CNRE_NUMA_NODES_MAX + 1, 0ul) == 0)
		return 0;
	if (errno == ENOSYS && numa_node == 0) /* a kernel without NUMA has node 0 only */
		return 0;
	return -errno;
}
