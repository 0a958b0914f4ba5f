/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same steps with plain calls, one after another, where io_uring is forbidden; and single ones of them where a kernel
 * has io_uring but not for that call. A drive that hangs has the thread then, and with it all jobs of the disk.
 */
#include "kvstore/disk_inner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct plain {
	struct disk_backend backend;
	struct kv_disk *disk;
	struct disk_steps ready; /* first steps of chains */
};

static int64_t call(const struct disk_step *step)
{
	switch (step->call) {
	case DISK_OPEN:
		return openat(step->fd, step->path, step->flags, DISK_FILE_MODE);
	case DISK_STAT:
		return statx(step->fd, step->path, AT_SYMLINK_NOFOLLOW, STATX_TYPE, step->stat);
	case DISK_READ:
		return preadv(step->fd, step->vector, (int)step->vector_count, (off_t)step->off);
	case DISK_WRITE:
		return pwritev(step->fd, step->vector, (int)step->vector_count, (off_t)step->off);
	case DISK_SYNC:
		return fsync(step->fd);
	case DISK_LINK:
		return linkat(step->fd, step->path, step->fd, step->to, step->flags);
	case DISK_UNLINK:
		return unlinkat(step->fd, step->path, 0);
	case DISK_CLOSE:
		return close(step->fd);
	case DISK_CALLS:
		break;
	}
	errno = ENOSYS;
	return -1;
}

int disk_plain_call(struct kv_disk *disk, const struct disk_step *step)
{
	int64_t result = call(step);

	disk->work.syscalls++;
	return result < 0 ? -errno : (int)result; /* a payload and a header fit */
}

/* Each is done before the next is begun, as in a linked chain. */
static void make_calls(struct plain *plain, struct disk_step *step)
{
	int is_cancelled = 0;

	while (step != NULL) {
		struct disk_step *then = step->then; /* the last of a chain may be used anew when it is done */
		int result = is_cancelled ? -ECANCELED : disk_plain_call(plain->disk, step);

		is_cancelled = !disk_step_was_full(step, result);
		disk_step_done(step, result);
		step = then;
	}
}

static void issue(struct disk_backend *backend, struct disk_step *first)
{
	disk_steps_add(&((struct plain *)backend)->ready, first);
}

static void turn(struct disk_backend *backend)
{
	struct plain *plain = (struct plain *)backend; /* its first member */
	struct disk_step *step = disk_steps_take(&plain->ready);
	uint64_t raised;

	if (step == NULL) {
		(void)!read(plain->disk->wake_fd, &raised, sizeof(raised));
		plain->disk->work.syscalls++;
	} else {
		make_calls(plain, step);
	}
}

static void close_plain(struct disk_backend *backend)
{
	free(backend);
}

int disk_plain_open(struct kv_disk *disk, struct disk_backend **ret_backend)
{
	struct plain *plain = calloc(1, sizeof(*plain));

	if (plain == NULL)
		return -ENOMEM;
	plain->backend = (struct disk_backend){.issue = issue, .turn = turn, .close = close_plain};
	plain->disk = disk;
	disk_steps_init(&plain->ready);
	*ret_backend = &plain->backend;
	return 0;
}
