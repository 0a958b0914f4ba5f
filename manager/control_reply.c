/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers as memory that the asker reads. That memory is charged to this process for as long as anybody has it open, and
 * anybody may ask for a history of a megabyte and keep its descriptor. So of large ones we keep a descriptor too, and take
 * the bytes back after a while, or when others come: whoever reads at once has all of them.
 */
#include "manager/control_inner.h"

#include "base/clock.h"
#include "manager/control.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE_BYTES (64u << 10)
#define KEPT_MAX 32u
#define KEPT_BYTES_MAX (64ull << 20)  /* of several; one may be larger */
#define KEPT_NS (10 * CNRE_NS_PER_S)

struct kept {
	int fd;
	uint64_t bytes;
	int64_t since_ns;
};

/* Of the one manager that a process has. */
static struct {
	struct kept kept[KEPT_MAX]; /* a ring, the oldest at `first` */
	uint32_t first, count;
	uint64_t bytes;
} replies;

static void drop_oldest(void)
{
	const struct kept *oldest = &replies.kept[replies.first];

	(void)ftruncate(oldest->fd, 0); /* a memory file without a seal against it */
	(void)close(oldest->fd);
	replies.bytes -= oldest->bytes;
	replies.first = (replies.first + 1) % KEPT_MAX;
	replies.count--;
}

static int keep(int fd, uint64_t bytes)
{
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (own < 0)
		return -errno;
	while (replies.count == KEPT_MAX || (replies.count > 0 && replies.bytes + bytes > KEPT_BYTES_MAX))
		drop_oldest();
	replies.kept[(replies.first + replies.count) % KEPT_MAX] = (struct kept){own, bytes, cnre_clock_now_ns()};
	replies.count++;
	replies.bytes += bytes;
	return 0;
}

void control_reply_tick(int64_t now_ns)
{
	while (replies.count > 0 && now_ns - replies.kept[replies.first].since_ns > KEPT_NS)
		drop_oldest();
}

static int write_all(int fd, const char *text, size_t bytes)
{
	size_t written = 0;

	while (written < bytes) {
		ssize_t n = write(fd, text + written, bytes - written);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			written += (size_t)n;
	}
	return 0;
}

int control_reply_open(const char *text, size_t bytes)
{
	int seals = F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL | (bytes < LARGE_BYTES ? F_SEAL_SHRINK : 0);
	int r, fd = memfd_create("cnre-reply", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	r = write_all(fd, text, bytes);
	if (r == 0 && fcntl(fd, F_ADD_SEALS, seals) < 0)
		r = -errno;
	if (r == 0 && bytes >= LARGE_BYTES)
		r = keep(fd, bytes);
	if (r == 0)
		return fd;
	(void)close(fd);
	return r;
}
