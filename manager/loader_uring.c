/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The io_uring engine: the only file that knows liburing. The ring belongs to the core thread (SINGLE_ISSUER) and runs
 * its completion work when that thread asks for it (DEFER_TASKRUN), older kernels do without. Descriptors and pool
 * segments sit in sparse tables of the ring, so a read pins no pages and looks up no file; where the memlock limit or
 * the kernel refuses that, reads are unregistered and the reason is in the status. There is no SQPOLL: the kernel
 * thread would keep a killed process until the drive answers (R22), and one submission per loop turn costs little.
 */
#include "manager/loader_backend.h"

#include "base/check.h"
#include "shm/layout.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#define CQ_ENTRIES_PER_SQ 4u
#define REAP_BATCH 64u
#define REAP_BATCHES_MAX 64u /* then the core looks at something else; the ring stays readable */
#define SELF_TEST_TRIES_MAX 16
#define FOREIGN_BIT 1u
#define NUDGE 0u /* user data of an operation that only wakes; a chunk is never at NULL */
/* READ and completions that are never dropped (5.6), waiting with a time-out that costs no entry (5.11). */
#define FEATURES_NEEDED (IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS | IORING_FEAT_EXT_ARG)

struct region { /* a registered segment; its number is its index in the ring's table */
	uintptr_t begin, end;
	uint32_t segment;
};

struct uring {
	struct loader_backend backend;
	struct io_uring ring;
	struct loader_chunks waiting; /* found no room in the ring; at most all chunks of the loader */
	struct region *region;        /* sorted by address; room for CNRE_SEGMENTS_MAX */
	uint32_t region_count;
	int has_buffer_table;
	uint8_t *slot_is_registered; /* NULL: descriptors are not */
	uint32_t held_slot;          /* behind those of the files: for loader_hold */
	int event_fd;                /* -1: nobody asked */
};

static struct uring *uring_of(struct loader_backend *backend)
{
	return (struct uring *)backend; /* its first member */
}

/* ---- registered memory ---- */

/* Index of the first region that ends behind the address. */
static uint32_t find_region(const struct uring *uring, uintptr_t address)
{
	uint32_t low = 0, high = uring->region_count;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (uring->region[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void note_refused_memory(struct uring *uring, int error, uint64_t bytes)
{
	struct rlimit limit = {0};

	(void)getrlimit(RLIMIT_MEMLOCK, &limit); /* only for the message */
	if (error != -ENOMEM && error != -EPERM)
		loader_note(uring->backend.status, "registered buffers refused: %s", strerrorname_np(-error));
	else
		loader_note(
			uring->backend.status,
			"registered buffers refused: %s: memlock limit %llu KiB, a segment needs %llu; raise LimitMEMLOCK",
			strerrorname_np(-error), (unsigned long long)limit.rlim_cur >> 10,
			(unsigned long long)bytes >> 10);
}

static int add_memory(struct loader_backend *backend, void *base, uint64_t bytes, uint32_t segment)
{
	struct uring *uring = uring_of(backend);
	struct iovec vector = {.iov_base = base, .iov_len = bytes};
	uintptr_t begin = (uintptr_t)base;
	__u64 tag = 0;
	uint32_t at;
	int r;

	if (!uring->has_buffer_table || segment >= CNRE_SEGMENTS_MAX || uring->region_count == CNRE_SEGMENTS_MAX)
		return 1;
	r = io_uring_register_buffers_update_tag(&uring->ring, segment, &vector, &tag, 1);
	if (r != 1) {
		note_refused_memory(uring, r < 0 ? r : -EINVAL, bytes);
		return 1;
	}
	at = find_region(uring, begin);
	memmove(&uring->region[at + 1], &uring->region[at], (uring->region_count - at) * sizeof(*uring->region));
	uring->region[at] = (struct region){.begin = begin, .end = begin + bytes, .segment = segment};
	uring->region_count++;
	backend->status->registered_buffers++;
	return 0;
}

static void remove_memory(struct loader_backend *backend, uint32_t segment)
{
	struct uring *uring = uring_of(backend);
	struct iovec nothing = {0};
	__u64 tag = 0;

	for (uint32_t i = 0; i < uring->region_count; i++) {
		if (uring->region[i].segment != segment)
			continue;
		uring->region_count--;
		memmove(&uring->region[i], &uring->region[i + 1], (uring->region_count - i) * sizeof(*uring->region));
		backend->status->registered_buffers--;
		/* A refusal would leave the pages pinned until the ring ends: memory comes back late, nothing else. */
		(void)io_uring_register_buffers_update_tag(&uring->ring, segment, &nothing, &tag, 1);
		return;
	}
}

/* The ring's table keeps the file open until the ring is gone, which is after its last read (R20). */
static int hold(struct loader_backend *backend, int fd)
{
	struct uring *uring = uring_of(backend);
	int r;

	if (uring->slot_is_registered == NULL)
		return -ENOTSUP;
	r = io_uring_register_files_update(&uring->ring, uring->held_slot, &fd, 1);
	return r < 0 ? r : 0;
}

static void slot_changed(struct loader_backend *backend, uint32_t slot, int fd)
{
	struct uring *uring = uring_of(backend);
	int r;

	if (uring->slot_is_registered == NULL || (fd < 0 && !uring->slot_is_registered[slot]))
		return;
	r = io_uring_register_files_update(&uring->ring, slot, &fd, 1);
	uring->slot_is_registered[slot] = r == 1 && fd >= 0;
}

/* ---- submission ---- */

/*
 * What is not prompt goes to the kernel's threads: else the core thread itself would copy what lies in the page cache or in
 * memory, and wait for a network or a FUSE server.
 */
static void fill_entry(struct uring *uring, struct io_uring_sqe *entry, struct loader_chunk *chunk)
{
	char *memory = chunk->memory + chunk->got;
	uint32_t bytes = chunk->bytes - chunk->got;
	uint64_t off = chunk->file_off + chunk->got;
	uint32_t at = find_region(uring, (uintptr_t)memory);
	const struct region *region = at < uring->region_count ? &uring->region[at] : NULL;

	if (region != NULL && region->begin <= (uintptr_t)memory && region->end - (uintptr_t)memory >= bytes)
		io_uring_prep_read_fixed(entry, chunk->fd, memory, bytes, off, (int)region->segment);
	else
		io_uring_prep_read(entry, chunk->fd, memory, bytes, off);
	if (uring->slot_is_registered != NULL && uring->slot_is_registered[chunk->slot]) {
		entry->fd = (int)chunk->slot;
		entry->flags |= IOSQE_FIXED_FILE;
	}
	if (!chunk->is_prompt)
		entry->flags |= IOSQE_ASYNC;
	io_uring_sqe_set_data(entry, chunk);
}

static int enter_chunk(struct uring *uring, struct loader_chunk *chunk)
{
	struct io_uring_sqe *entry = io_uring_get_sqe(&uring->ring);

	if (entry == NULL)
		return 0;
	fill_entry(uring, entry, chunk);
	return 1;
}

/* Ends: each turn hands entries to the kernel, and there are at most as many as chunks. */
static void flush(struct loader_backend *backend)
{
	struct uring *uring = uring_of(backend);

	for (;;) {
		while (uring->waiting.first != NULL && enter_chunk(uring, uring->waiting.first))
			(void)loader_chunks_take(&uring->waiting);
		if (io_uring_sq_ready(&uring->ring) == 0 || io_uring_submit(&uring->ring) <= 0)
			return; /* -EINTR, -EAGAIN, -EBUSY: the entries stay in the ring for the next flush */
	}
}

static void issue(struct loader_backend *backend, struct loader_chunk *chunk)
{
	struct uring *uring = uring_of(backend);

	if (uring->waiting.first == NULL && enter_chunk(uring, chunk))
		return;
	loader_chunks_add(&uring->waiting, chunk);
	flush(backend);
}

static void nudge(struct loader_backend *backend)
{
	struct uring *uring = uring_of(backend);
	struct io_uring_sqe *entry = io_uring_get_sqe(&uring->ring);

	if (entry == NULL)
		return; /* a full ring has something to wake for */
	io_uring_prep_nop(entry);
	entry->user_data = NUDGE;
}

/* ---- completion ---- */

static void report_one(const struct loader_report *report, uint64_t user_data, int result)
{
	if (user_data & FOREIGN_BIT)
		report->foreign(report->context, user_data, result);
	else if (user_data != NUDGE)
		report->chunk_done(report->context, (struct loader_chunk *)(uintptr_t)user_data, result);
}

/* Completions are copied and given back first: what they lead to may use the ring. */
static unsigned reap_batch(struct uring *uring, const struct loader_report *report)
{
	struct io_uring_cqe *entry[REAP_BATCH];
	struct {
		uint64_t user_data;
		int result;
	} copy[REAP_BATCH];
	unsigned count = io_uring_peek_batch_cqe(&uring->ring, entry, REAP_BATCH);

	for (unsigned i = 0; i < count; i++) {
		copy[i].user_data = entry[i]->user_data;
		copy[i].result = entry[i]->res;
	}
	io_uring_cq_advance(&uring->ring, count);
	for (unsigned i = 0; i < count; i++)
		report_one(report, copy[i].user_data, copy[i].result);
	return count;
}

static void reap(struct loader_backend *backend, const struct loader_report *report)
{
	struct uring *uring = uring_of(backend);
	uint64_t count;

	if (uring->event_fd >= 0)
		(void)!read(uring->event_fd, &count, sizeof(count)); /* first: what completes later raises it again */
	for (uint32_t i = 0; i < REAP_BATCHES_MAX; i++)
		if (reap_batch(uring, report) == 0)
			return;
	if (uring->event_fd >= 0)
		(void)!write(uring->event_fd, &(uint64_t){1}, sizeof(count)); /* there is more */
}

static void wait_a_while(struct loader_backend *backend)
{
	struct __kernel_timespec slice = {.tv_nsec = LOADER_WAIT_NS};
	struct io_uring_cqe *entry;

	(void)io_uring_wait_cqe_timeout(&uring_of(backend)->ring, &entry, &slice); /* reap looks anyway */
}

/* ---- life ---- */

/*
 * What cannot be read at once goes to threads of the kernel, by default four a CPU for all drives: one drive that hangs
 * would have them all. So many as chunks may be in flight are enough; where that is refused (before 5.15) it stays so.
 */
static int add_drive(struct loader_backend *backend, uint32_t drive)
{
	unsigned most[2] = {backend->status->chunk_depth * (drive + 1), 0}; /* for files; 0 leaves the others alone */

	(void)io_uring_register_iowq_max_workers(&uring_of(backend)->ring, most);
	return 0;
}

/*
 * Made when first asked for: a core that sleeps in the ring does not pay for it. The ring's own descriptor would not
 * do: with DEFER_TASKRUN poll(2) on it was seen to sleep through completions (6.18), an eventfd is raised for them.
 */
static int event_fd(struct loader_backend *backend)
{
	struct uring *uring = uring_of(backend);
	int fd, r;

	if (uring->event_fd >= 0)
		return uring->event_fd;
	fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	r = io_uring_register_eventfd(&uring->ring, fd);
	if (r < 0) {
		(void)close(fd);
		return r;
	}
	uring->event_fd = fd;
	return fd;
}

static void close_uring(struct loader_backend *backend)
{
	struct uring *uring = uring_of(backend);

	io_uring_queue_exit(&uring->ring);
	if (uring->event_fd >= 0)
		(void)close(uring->event_fd);
	free(uring->slot_is_registered);
	free(uring->region);
	free(uring);
}

static const struct loader_backend_calls calls = {
	.issue = issue,
	.flush = flush,
	.reap = reap,
	.wait = wait_a_while,
	.nudge = nudge,
	.add_drive = add_drive,
	.add_memory = add_memory,
	.remove_memory = remove_memory,
	.hold = hold,
	.slot_changed = slot_changed,
	.event_fd = event_fd,
	.close = close_uring,
};

/* An operation that does nothing, there and back: a filter may allow the set-up and forbid the use. */
static int self_test(struct io_uring *ring)
{
	struct io_uring_sqe *entry = io_uring_get_sqe(ring);
	struct io_uring_cqe *done;
	int r = -EINTR;

	if (entry == NULL)
		return -ENOMEM;
	io_uring_prep_nop(entry);
	entry->user_data = NUDGE;
	for (int i = 0; i < SELF_TEST_TRIES_MAX && (r == -EINTR || r == -EAGAIN); i++)
		r = io_uring_submit_and_wait(ring, 1);
	if (r < 0)
		return r;
	r = io_uring_peek_cqe(ring, &done);
	if (r < 0)
		return r;
	r = done->res;
	io_uring_cqe_seen(ring, done);
	return r;
}

static int try_ring(struct io_uring *ring, unsigned entries, unsigned flags)
{
	struct io_uring_params parameters = {.flags = flags | IORING_SETUP_CQSIZE,
					     .cq_entries = entries * CQ_ENTRIES_PER_SQ};
	int r = io_uring_queue_init_params(entries, ring, &parameters);

	if (r < 0)
		return r;
	r = (parameters.features & FEATURES_NEEDED) == FEATURES_NEEDED ? self_test(ring) : -ENOSYS;
	if (r < 0)
		io_uring_queue_exit(ring);
	return r;
}

/* The best flags that the kernel knows. */
static int try_entries(struct io_uring *ring, unsigned entries)
{
	static const unsigned flags[] = {
		IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			IORING_SETUP_TASKRUN_FLAG,
		IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
		IORING_SETUP_SUBMIT_ALL,
		0,
	};
	int r = -EINVAL;

	for (size_t i = 0; i < CNRE_COUNT_OF(flags) && r == -EINVAL; i++)
		r = try_ring(ring, entries, flags[i]);
	return r;
}

/* Kernels before 5.12 charge the ring itself to the memlock limit, so a smaller one may be had. */
static int make_ring(struct io_uring *ring, struct loader_status *status)
{
	static const unsigned entries[] = {256, 64, 16};
	int r = -ENOMEM;

	for (size_t i = 0; i < CNRE_COUNT_OF(entries) && r == -ENOMEM; i++) {
		r = try_entries(ring, entries[i]);
		if (r == 0 && i != 0)
			loader_note(status, "io_uring: only %u entries (memlock limit)", entries[i]);
	}
	return r;
}

static const char *cause_of(int error)
{
	switch (error) {
	case -EPERM:
	case -EACCES:
		return "forbidden by a seccomp filter or kernel.io_uring_disabled";
	case -ENOSYS:
		return "kernel too old, or hidden by a seccomp filter";
	case -ENOMEM:
		return "memlock limit or no memory";
	default:
		return "set-up failed";
	}
}

static void register_tables(struct uring *uring, uint32_t slots)
{
	struct loader_status *status = uring->backend.status;
	int r = io_uring_register_buffers_sparse(&uring->ring, CNRE_SEGMENTS_MAX);

	uring->has_buffer_table = r == 0;
	if (r < 0)
		loader_note(status, "registered buffers refused: %s", strerrorname_np(-r));
	uring->slot_is_registered = calloc(slots, sizeof(*uring->slot_is_registered));
	r = uring->slot_is_registered == NULL ? -ENOMEM : io_uring_register_files_sparse(&uring->ring, slots + 1);
	uring->held_slot = slots;
	status->registered_files = r == 0;
	if (r == 0)
		return;
	loader_note(status, "registered files refused: %s", strerrorname_np(-r));
	free(uring->slot_is_registered);
	uring->slot_is_registered = NULL;
}

int loader_uring_open(struct loader_backend **ret_backend, struct loader_status *status, uint32_t slots)
{
	struct uring *uring = calloc(1, sizeof(*uring));
	int r = -ENOMEM;

	if (uring == NULL)
		return r;
	uring->backend = (struct loader_backend){.calls = &calls, .ring = &uring->ring, .status = status};
	uring->event_fd = -1;
	uring->region = calloc(CNRE_SEGMENTS_MAX, sizeof(*uring->region));
	if (uring->region == NULL)
		goto fail;
	r = make_ring(&uring->ring, status);
	if (r < 0) {
		loader_note(status, "io_uring: %s: %s", strerrorname_np(-r), cause_of(r));
		goto fail;
	}
	(void)io_uring_ring_dontfork(
		&uring->ring); /* a child that touched the rings would disturb us; CLOEXEC does the rest */
	register_tables(uring, slots);
	status->uring = 1;
	*ret_backend = &uring->backend;
	return 0;
fail:
	free(uring->region);
	free(uring);
	return r;
}
