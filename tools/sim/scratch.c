/* SPDX-License-Identifier: Apache-2.0 */
/* Memory backed by an unlinked file; see scratch.h. */
#include "tools/sim/scratch.h"

#include "tools/sim/trace_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

int sim_scratch_open(struct sim_scratch *ret_scratch, const char *directory, uint64_t count, uint64_t element_bytes)
{
	uint64_t bytes;
	void *memory;
	int fd, r = 0;

	if (__builtin_mul_overflow(count, element_bytes, &bytes) || bytes > INT64_MAX)
		return -EOVERFLOW;
	if (bytes == 0)
		bytes = 1;
	fd = sim_store_unlinked(directory);
	if (fd < 0)
		return fd;
	r = -posix_fallocate(fd, 0, (off_t)bytes);
	if (r < 0)
		goto close_fd;
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		r = -errno;
		goto close_fd;
	}
	*ret_scratch = (struct sim_scratch){.memory = memory, .bytes = bytes};
close_fd:
	(void)close(fd); /* the mapping keeps the file */
	return r;
}

void sim_scratch_close(struct sim_scratch *scratch)
{
	if (scratch->memory != NULL)
		(void)munmap(scratch->memory, scratch->bytes);
	*scratch = (struct sim_scratch){0};
}
