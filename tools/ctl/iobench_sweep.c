/* SPDX-License-Identifier: Apache-2.0 */
/* Which measurements, in which order, for how long; see iobench_sweep.h. */
#include "tools/ctl/iobench_sweep.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/size.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#define BUFFER_ALIGNMENT \
	(2u << 20) /* huge pages, as the manager's pool has them: a virtual drive is much faster into those */
#define STALL_NS (30 * CNRE_NS_PER_S)
#define PHASE_STEP 0x9e3779b97f4a7c15ull

static const uint64_t swept_blocks[] = {1u << 20, 4u << 20, 16u << 20};
static const uint32_t swept_threads[] = {1, 4, 16};
static const char stalled[] = "no read has ended for 30 s: the drive hangs, or --block is too large for it";
static const char refused_direct[] = "direct reads are refused here: --direct no, or both";

_Static_assert(CNRE_COUNT_OF(swept_blocks) * CNRE_COUNT_OF(swept_threads) * 2 <= IOBENCH_POINTS_MAX,
	       "a sweep has room");

struct sweep {
	struct iobench *bench;
	const struct iobench_words *words;
	unsigned char *base, *buffers; /* as mapped, and aligned */
	uint64_t buffer_bytes;
	struct iobench_times times; /* of one measurement */
	uint64_t phase;
	char *message;
};

static int fail(const struct sweep *sweep, const char *what, int error, const char *reason)
{
	(void)snprintf(sweep->message, CTL_MESSAGE_BYTES, "%.600s: %s", what, reason);
	return error;
}

/* ---- memory: touched before anything is measured ---- */

/* What is mapped for so many bytes: the first of them aligned, and whole huge pages. */
static uint64_t room_for(uint64_t bytes)
{
	return cnre_size_align_up(bytes, BUFFER_ALIGNMENT) + BUFFER_ALIGNMENT;
}

static void unmap_buffers(struct sweep *sweep)
{
	if (sweep->base != NULL)
		(void)munmap(sweep->base, room_for(sweep->buffer_bytes));
	sweep->base = NULL;
	sweep->buffer_bytes = 0;
}

static int need_buffers(struct sweep *sweep, uint64_t bytes)
{
	void *base;

	if (bytes <= sweep->buffer_bytes)
		return 0;
	unmap_buffers(sweep);
	base = mmap(NULL, room_for(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return fail(sweep, "memory for blocks in flight", -ENOMEM,
			    "none to be had: a smaller --block or fewer --threads");
	sweep->base = base;
	sweep->buffers = (unsigned char *)cnre_size_align_up((uint64_t)(uintptr_t)base, BUFFER_ALIGNMENT);
	sweep->buffer_bytes = bytes;
	(void)madvise(base, room_for(bytes), MADV_HUGEPAGE); /* without, small pages: slower, not wrong */
	memset(sweep->buffers, 0, bytes);
	return 0;
}

/* ---- settings ---- */

static uint32_t blocks_of(const struct iobench_words *words, const uint64_t **ret_blocks)
{
	*ret_blocks = words->block_bytes != 0 ? &words->block_bytes : swept_blocks;
	return words->block_bytes != 0 ? 1 : CNRE_COUNT_OF(swept_blocks);
}

static uint32_t threads_of(const struct iobench_words *words, const uint32_t **ret_threads)
{
	*ret_threads = words->threads != 0 ? &words->threads : swept_threads;
	return words->threads != 0 ? 1 : CNRE_COUNT_OF(swept_threads);
}

/* Where the caller names the one, the other stays within the same bound of memory. */
static int fits_memory(uint64_t block_bytes, uint32_t threads)
{
	return block_bytes * threads <= IOBENCH_BUFFERS_MAX;
}

static void add_points(struct iobench_drive *drive, const struct iobench_words *words, uint64_t block_bytes,
		       uint32_t threads)
{
	for (int is_direct = 1; is_direct >= 0; is_direct--) {
		if (!(is_direct ? words->with_direct && drive->file.direct_fd >= 0 : words->with_buffered))
			continue;
		CNRE_CHECK(drive->point_count < IOBENCH_POINTS_MAX);
		drive->point[drive->point_count++] =
			(struct iobench_point){.block_bytes = block_bytes, .threads = threads, .is_direct = is_direct};
	}
}

static void plan_drive(struct iobench_drive *drive, const struct iobench_words *words)
{
	const uint64_t *blocks;
	const uint32_t *threads;
	uint32_t block_count = blocks_of(words, &blocks), thread_count = threads_of(words, &threads);

	for (uint32_t b = 0; b < block_count; b++)
		for (uint32_t t = 0; t < thread_count; t++)
			if (blocks[b] <= drive->file.bytes && fits_memory(blocks[b], threads[t]))
				add_points(drive, words, blocks[b], threads[t]);
}

static uint64_t in_flight_bytes(const struct iobench_point *point)
{
	return point->block_bytes * point->threads;
}

static int plan(struct sweep *sweep)
{
	uint64_t bytes = 0, points = 0;

	for (uint32_t i = 0; i < sweep->bench->drive_count; i++) {
		struct iobench_drive *drive = &sweep->bench->drive[i];
		const char *path = drive->file.path;

		if (!sweep->words->with_buffered && drive->file.direct_fd < 0)
			return fail(sweep, path, drive->file.direct_error, refused_direct);
		plan_drive(drive, sweep->words);
		if (drive->point_count == 0)
			return fail(sweep, path, -EINVAL,
				    "smaller than a block: name a larger file, or a smaller --block");
		points += drive->point_count;
		for (uint32_t p = 0; p < drive->point_count; p++)
			if (in_flight_bytes(&drive->point[p]) > bytes)
				bytes = in_flight_bytes(&drive->point[p]);
	}
	points += sweep->bench->drive_count > 1;
	sweep->times = (struct iobench_times){.time_ns = (int64_t)(sweep->words->seconds * 1e9 / (double)points),
					      .stall_ns = STALL_NS};
	return need_buffers(sweep, bytes);
}

/* ---- one drive alone ---- */

static struct iobench_lane lane_of(struct sweep *sweep, const struct iobench_drive *drive,
				   const struct iobench_point *point)
{
	sweep->phase += PHASE_STEP;
	return (struct iobench_lane){
		.fd = point->is_direct ? drive->file.direct_fd : drive->file.buffered_fd,
		.file_bytes = drive->file.bytes,
		.block_bytes = point->block_bytes,
		.threads = point->threads,
		.count = sweep->words->count,
		.phase = sweep->phase,
		.buffers = sweep->buffers,
	};
}

/*
 * 1: this much in flight would take longer than the time that there is, as far as the drive is known by now. Such a
 * drive is slow, and slow ones need little in flight.
 */
static int is_beyond(const struct sweep *sweep, const struct iobench_drive *drive, uint32_t index)
{
	const struct iobench_point *point = &drive->point[index];
	double best = 0.0;

	for (uint32_t i = 0; i < index; i++)
		if (drive->point[i].measured.error == 0 && iobench_rate(&drive->point[i].measured) > best)
			best = iobench_rate(&drive->point[i].measured);
	return best > 0.0 && (double)in_flight_bytes(point) / best * 1e9 > 2.0 * (double)sweep->times.time_ns;
}

static void drop_point(struct iobench_drive *drive, uint32_t index)
{
	drive->point_count--;
	memmove(&drive->point[index], &drive->point[index + 1], (drive->point_count - index) * sizeof drive->point[0]);
}

static void drop_direct(struct iobench_drive *drive, int error)
{
	for (uint32_t i = drive->point_count; i-- > 0;)
		if (drive->point[i].is_direct)
			drop_point(drive, i);
	iobench_file_refuse_direct(&drive->file, error);
}

static int measure_point(struct sweep *sweep, struct iobench_drive *drive, struct iobench_point *point)
{
	struct iobench_lane lane = lane_of(sweep, drive, point);
	int r;

	if (!point->is_direct)
		iobench_file_forget(&drive->file);
	r = iobench_trial(&lane, 1, &sweep->times, &point->measured);
	if (r == -ETIMEDOUT)
		return fail(sweep, drive->file.path, r, stalled);
	return r < 0 ? fail(sweep, drive->file.path, r, strerror(-r)) : 0;
}

/* Refused at the first read and not at open: some file systems do. Then there are only reads through the page cache. */
static int is_refusal(const struct iobench_point *point)
{
	return point->is_direct && point->measured.error == -EINVAL;
}

static int measure_points(struct sweep *sweep, struct iobench_drive *drive)
{
	for (uint32_t i = 0; i < drive->point_count; i++) {
		struct iobench_point *point = &drive->point[i];
		int r;

		if (is_beyond(sweep, drive, i)) {
			drop_point(drive, i--);
			continue;
		}
		r = measure_point(sweep, drive, point);
		if (r < 0)
			return r;
		if (is_refusal(point))
			return -EINVAL;
		if (point->measured.error != 0)
			return fail(sweep, drive->file.path, point->measured.error, strerror(-point->measured.error));
	}
	return 0;
}

static int measure_drive(struct sweep *sweep, struct iobench_drive *drive)
{
	int r = measure_points(sweep, drive);

	if (r == -EINVAL && !sweep->words->with_buffered)
		return fail(sweep, drive->file.path, r, refused_direct);
	if (r == -EINVAL) {
		drop_direct(drive, r);
		r = measure_points(sweep, drive);
	}
	if (r < 0)
		return r;
	drive->chosen = iobench_choose(drive->point, drive->point_count);
	return drive->chosen < 0 ? fail(sweep, drive->file.path, -EIO, "nothing was read in the time: more --seconds")
				 : 0;
}

/* ---- all together ---- */

/* One lane for each disk, with the setting chosen for it; their buffers one behind the other. Returns how many. */
static uint32_t fill_lanes(struct sweep *sweep, struct iobench_lane lane[IOBENCH_TARGETS_MAX], double *ret_sum)
{
	uint64_t used = 0;
	uint32_t count = 0;

	*ret_sum = 0.0;
	for (uint32_t i = 0; i < sweep->bench->drive_count; i++) {
		struct iobench_drive *drive = &sweep->bench->drive[i];
		const struct iobench_point *point = &drive->point[drive->chosen];

		if (drive->same_disk_as >= 0)
			continue;
		lane[count] = lane_of(sweep, drive, point);
		lane[count++].buffers = sweep->buffers + used;
		used += in_flight_bytes(point);
		*ret_sum += iobench_rate(&point->measured);
		if (!point->is_direct)
			iobench_file_forget(&drive->file);
	}
	return count;
}

static uint64_t together_bytes(const struct iobench *bench)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < bench->drive_count; i++)
		if (bench->drive[i].same_disk_as < 0)
			bytes += in_flight_bytes(&bench->drive[i].point[bench->drive[i].chosen]);
	return bytes;
}

/* Left out where there is one disk only, or where so much in flight would need too much memory. */
static int measure_together(struct sweep *sweep)
{
	struct iobench_measured measured[IOBENCH_TARGETS_MAX];
	struct iobench_lane lane[IOBENCH_TARGETS_MAX];
	struct iobench *bench = sweep->bench;
	uint32_t count;
	double sum;
	int r;

	if (together_bytes(bench) > IOBENCH_BUFFERS_MAX)
		return 0;
	r = need_buffers(sweep, together_bytes(bench));
	if (r < 0)
		return r;
	count = fill_lanes(sweep, lane, &sum);
	if (count < 2)
		return 0;
	r = iobench_trial(lane, count, &sweep->times, measured);
	if (r < 0)
		return fail(sweep, "all together", r, r == -ETIMEDOUT ? stalled : strerror(-r));
	for (uint32_t i = 0; i < count; i++) {
		if (measured[i].error != 0)
			return fail(sweep, "all together", measured[i].error, strerror(-measured[i].error));
		bench->together_rate += iobench_rate(&measured[i]);
	}
	bench->together_sum = sum;
	bench->together_count = count;
	return 0;
}

/* ---- whole ---- */

static int open_drives(struct iobench *bench, const struct iobench_words *words, char message[CTL_MESSAGE_BYTES])
{
	for (uint32_t i = 0; i < words->target_count; i++) {
		struct iobench_drive *drive = &bench->drive[i];
		int r = iobench_file_open(&drive->file, words->target[i], message);

		if (r < 0)
			return r;
		bench->drive_count++;
		drive->target = words->target[i];
		drive->same_disk_as = -1;
		for (uint32_t j = 0; j < i && drive->same_disk_as < 0; j++)
			if (strcmp(bench->drive[j].file.disk_name, drive->file.disk_name) == 0)
				drive->same_disk_as = (int)j;
	}
	return 0;
}

int iobench_run(struct iobench *bench, const struct iobench_words *words, char message[CTL_MESSAGE_BYTES])
{
	struct sweep sweep = {.bench = bench, .words = words, .message = message};
	int r;

	memset(bench, 0, sizeof *bench);
	bench->is_for_block = words->block_bytes != 0;
	r = open_drives(bench, words, message);
	if (r == 0)
		r = plan(&sweep);
	for (uint32_t i = 0; i < bench->drive_count && r == 0; i++)
		r = measure_drive(&sweep, &bench->drive[i]);
	if (r == 0 && bench->drive_count > 1)
		r = measure_together(&sweep);
	if (r != -ETIMEDOUT) /* then reads are under way into them */
		unmap_buffers(&sweep);
	return r;
}

void iobench_close(struct iobench *bench)
{
	for (uint32_t i = 0; i < bench->drive_count; i++)
		iobench_file_close(&bench->drive[i].file);
}
