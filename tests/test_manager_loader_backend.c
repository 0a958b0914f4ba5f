/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of the loader against an engine that plays a script: what short counts, interruptions, refusals and
 * nonsense from the kernel mean for a read. The script takes the place of the pread pool (the two opening functions
 * below hide the real ones from the linker), so each answer of the kernel can be had, and in any order.
 */
#include "manager/loader_backend.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ISSUED_MAX 64
#define FILE_BYTES (1u << 20)

struct issued {
	struct loader_chunk *chunk;
	uint64_t off;
	uint32_t bytes;
	int is_answered;
};
struct answer {
	uint32_t attempt;
	int result;
};

static struct script {
	struct loader_backend backend;
	struct issued issued[ISSUED_MAX]; /* every attempt, in order */
	uint32_t count, nudges;
	struct answer answer[ISSUED_MAX]; /* for the next reap */
	uint32_t answers;
} script;

static struct loader *loader;
static struct loader_read object[4];
static uint32_t done_order[4], done_count;
static int done_status[4];
static int file;
static char path[64];
static char memory[64 << 10] __attribute__((aligned(4096)));

static void issue(struct loader_backend *backend, struct loader_chunk *chunk)
{
	(void)backend;
	cr_assert_lt(script.count, ISSUED_MAX);
	script.issued[script.count++] = (struct issued){
		.chunk = chunk, .off = chunk->file_off + chunk->got, .bytes = chunk->bytes - chunk->got};
}

static void reap(struct loader_backend *backend, const struct loader_report *report)
{
	uint32_t answers = script.answers;

	(void)backend;
	script.answers = 0;
	for (uint32_t i = 0; i < answers; i++)
		report->chunk_done(report->context, script.issued[script.answer[i].attempt].chunk,
				   script.answer[i].result);
}

static void nothing(struct loader_backend *backend)
{
	(void)backend;
}
static void count_nudge(struct loader_backend *backend)
{
	(void)backend;
	script.nudges++;
}
static int accept_drive(struct loader_backend *backend, uint32_t drive)
{
	(void)backend;
	(void)drive;
	return 0;
}
static void ignore_slot(struct loader_backend *backend, uint32_t slot, int fd)
{
	(void)backend;
	(void)slot;
	(void)fd;
}

static void add_answer(uint32_t attempt, int result)
{
	cr_assert(attempt < script.count && !script.issued[attempt].is_answered);
	script.issued[attempt].is_answered = 1;
	script.answer[script.answers++] = (struct answer){attempt, result};
}

/* loader_close waits for what is in flight: it all arrives. */
static void answer_rest(struct loader_backend *backend)
{
	(void)backend;
	for (uint32_t i = 0; i < script.count; i++)
		if (!script.issued[i].is_answered)
			add_answer(i, (int)script.issued[i].bytes);
}

static const struct loader_backend_calls calls = {
	.issue = issue,
	.flush = nothing,
	.reap = reap,
	.wait = answer_rest,
	.nudge = count_nudge,
	.add_drive = accept_drive,
	.slot_changed = ignore_slot,
	.close = nothing,
};

int loader_uring_open(struct loader_backend **ret_backend, struct loader_status *status, uint32_t slots)
{
	(void)ret_backend;
	(void)slots;
	loader_note(status, "no ring in this test");
	return -EPERM;
}

int loader_pool_open(struct loader_backend **ret_backend, struct loader_status *status, uint32_t threads)
{
	(void)threads;
	script = (struct script){.backend = {.calls = &calls, .status = status}};
	*ret_backend = &script.backend;
	return 0;
}

static void note_done(struct loader_read *read, int status)
{
	done_status[done_count] = status;
	done_order[done_count++] = (uint32_t)(read - object);
}

static void answer(uint32_t attempt, int result)
{
	add_answer(attempt, result);
	(void)loader_reap(loader);
}

static void begin_with(struct loader_setup setup)
{
	int fd;

	strcpy(path, "/var/tmp/cnre-retry-XXXXXX");
	fd = mkstemp(path);
	cr_assert(fd >= 0 && ftruncate(fd, FILE_BYTES) == 0);
	(void)close(fd);
	done_count = 0;
	cr_assert_eq(loader_open(&loader, &setup), 0);
	file = loader_add_file(loader, path, FILE_BYTES);
	cr_assert_geq(file, 0);
	(void)unlink(path);
}

static void submit(uint32_t number, uint64_t file_off, uint64_t bytes)
{
	object[number] = (struct loader_read){.run_count = 1, .done = note_done};
	object[number].run[0] = (struct loader_run){
		.file = (uint32_t)file, .file_off = file_off, .bytes = bytes, .needed_bytes = bytes, .memory = memory};
	loader_submit(loader, &object[number]);
}

static void end(void)
{
	loader = loader_close(loader);
}

/* criterion does not run .fini after a skip. */
static void skip_test(const char *reason)
{
	end();
	cr_skip("%s", reason);
}

TestSuite(manager_loader_backend, .fini = end, .timeout = 30);

static const struct loader_setup plain = {.chunk_bytes = 8192, .chunk_depth = 4, .force_buffered = 1};
static const struct loader_setup direct = {.chunk_bytes = 8192, .chunk_depth = 4};

Test(manager_loader_backend, a_short_count_is_continued_where_it_stopped)
{
	begin_with(plain);
	submit(0, 4096, 8192);
	answer(0, 5000);
	cr_assert_eq(script.count, 2);
	cr_assert_eq(script.issued[1].off, 4096 + 5000);
	cr_assert_eq(script.issued[1].bytes, 3192);
	cr_assert_eq(done_count, 0, "a short read is not ready");
	answer(1, 3192);
	cr_assert(done_count == 1 && done_status[0] == 0);
	cr_assert(object[0].bytes_read == 8192 && object[0].retries == 1 && object[0].run_got[0] == 8192);
}

Test(manager_loader_backend, a_direct_read_goes_on_at_a_block)
{
	begin_with(direct);
	if (!loader_file_is_direct(loader, (uint32_t)file))
		skip_test("no O_DIRECT under /var/tmp");
	submit(0, 0, 8192);
	answer(0, 5000);
	cr_assert_eq(script.issued[1].off, 4096);
	answer(1, 4096);
	cr_assert(done_count == 1 && done_status[0] == 0);
	cr_assert_eq(object[0].run_got[0], 8192);
	cr_assert_eq(object[0].bytes_read, 9096, "bytes read twice count twice");
}

Test(manager_loader_backend, a_direct_read_that_ends_in_a_block_for_good_fails)
{
	begin_with(direct);
	if (!loader_file_is_direct(loader, (uint32_t)file))
		skip_test("no O_DIRECT under /var/tmp");
	submit(0, 0, 8192);
	answer(0, 5000);
	for (uint32_t i = 1; done_count == 0; i++) {
		cr_assert_leq(i, 1 + LOADER_RETRIES_MAX);
		answer(i, 904);
	}
	cr_assert_eq(done_status[0], -EBADMSG);
	cr_assert_eq(object[0].failed_off, 4096);
}

Test(manager_loader_backend, interruptions_are_retried_a_bounded_number_of_times)
{
	const int errors[] = {-EINTR, -EAGAIN};

	for (int k = 0; k < 2; k++) {
		begin_with(plain);
		submit(0, 0, 8192);
		for (uint32_t i = 0; i < LOADER_RETRIES_MAX; i++) {
			answer(i, errors[k]);
			cr_assert_eq(done_count, 0);
		}
		answer(LOADER_RETRIES_MAX, errors[k]);
		cr_assert(done_count == 1 && done_status[0] == errors[k]);
		cr_assert_eq(object[0].retries, LOADER_RETRIES_MAX);
		loader = loader_close(loader);
	}
}

Test(manager_loader_backend, progress_renews_the_patience)
{
	begin_with(plain);
	submit(0, 0, 8192);
	for (uint32_t i = 0; i < 2 * LOADER_RETRIES_MAX; i++)
		answer(i, i % 2 ? 16 : -EINTR);
	cr_assert_eq(done_count, 0);
	answer(2 * LOADER_RETRIES_MAX, 8192 - 16 * LOADER_RETRIES_MAX);
	cr_assert(done_count == 1 && done_status[0] == 0);
}

Test(manager_loader_backend, end_of_file_before_what_is_needed_is_badmsg)
{
	begin_with(plain);
	submit(0, 4096, 8192);
	answer(0, 100);
	answer(1, 0);
	cr_assert(done_count == 1 && done_status[0] == -EBADMSG);
	cr_assert(object[0].failed_run == 0 && object[0].failed_off == 4096 + 100);
}

Test(manager_loader_backend, more_bytes_than_asked_for_is_an_error)
{
	begin_with(plain);
	submit(0, 0, 8192);
	answer(0, 8193);
	cr_assert(done_count == 1 && done_status[0] == -EIO);
}

static uint32_t refusals;

static void count_refusal(void *context, uint32_t which)
{
	*(uint32_t *)context += which == (uint32_t)file;
}

Test(manager_loader_backend, a_refused_direct_read_is_repeated_buffered)
{
	struct loader_setup told = direct;
	struct loader_status status;

	told.refused = count_refusal;
	told.refused_context = &refusals;
	begin_with(told);
	if (!loader_file_is_direct(loader, (uint32_t)file))
		skip_test("no O_DIRECT under /var/tmp");
	submit(0, 0, 16384);
	cr_assert_eq(script.count, 2);
	answer(0, -EINVAL);
	answer(1, -EINVAL);
	cr_assert_not(loader_file_is_direct(loader, (uint32_t)file));
	cr_assert_not(script.issued[2].chunk->is_direct);
	answer(2, 8192);
	answer(3, 8192);
	cr_assert(done_count == 1 && done_status[0] == 0);
	loader_get_status(loader, &status);
	cr_assert(status.files_direct == 0 && status.files_buffered == 1);
	cr_assert_eq(refusals, 1, "both chunks met it; it is told once");
}

Test(manager_loader_backend, a_buffered_read_that_is_refused_fails)
{
	struct loader_setup told = plain;

	told.refused = count_refusal;
	told.refused_context = &refusals;
	begin_with(told);
	submit(0, 0, 8192);
	answer(0, -EINVAL);
	cr_assert(done_count == 1 && done_status[0] == -EINVAL);
	cr_assert_eq(refusals, 0, "nobody asked for direct reads");
}

Test(manager_loader_backend, the_first_failing_place_is_reported_whatever_the_order)
{
	begin_with(plain);
	submit(0, 0, 32768);
	cr_assert_eq(script.count, 4);
	answer(3, -EIO);
	answer(1, -ENODATA);
	answer(2, -EIO);
	cr_assert_eq(done_count, 0, "one is still in flight and may write to the memory");
	answer(0, 8192);
	cr_assert(done_count == 1 && done_status[0] == -ENODATA);
	cr_assert_eq(object[0].failed_off, 8192);
}

Test(manager_loader_backend, nothing_more_is_sent_for_a_failed_read)
{
	begin_with(plain);
	submit(0, 0, 65536);
	cr_assert_eq(script.count, 4);
	answer(0, -EIO);
	for (uint32_t i = 1; i < 4; i++)
		answer(i, 8192);
	cr_assert_eq(script.count, 4);
	cr_assert(done_count == 1 && done_status[0] == -EIO);
}

Test(manager_loader_backend, the_oldest_object_gets_the_depth_first)
{
	begin_with(plain);
	submit(0, 0, 65536);
	submit(1, 65536, 65536);
	for (uint32_t i = 0; i < 16; i++) {
		cr_assert_eq(script.issued[i].off, i * 8192ull);
		cr_assert_leq(script.count, i + 4, "never more than chunk_depth in flight");
		answer(i, 8192);
	}
	cr_assert(done_count == 2 && done_order[0] == 0 && done_order[1] == 1);
}

Test(manager_loader_backend, a_lone_object_uses_the_whole_depth_at_once)
{
	begin_with((struct loader_setup){.chunk_bytes = 4096, .chunk_depth = 16, .force_buffered = 1});
	submit(0, 0, 65536);
	cr_assert_eq(script.count, 16);
}

Test(manager_loader_backend, what_is_not_needed_is_not_read)
{
	begin_with(plain);
	object[0] = (struct loader_read){.run_count = 2, .done = note_done};
	object[0].run[0] =
		(struct loader_run){.file = (uint32_t)file, .bytes = 16384, .needed_bytes = 8000, .memory = memory};
	object[0].run[1] =
		(struct loader_run){.file = (uint32_t)file, .bytes = 8192, .needed_bytes = 0, .memory = memory};
	loader_submit(loader, &object[0]);
	cr_assert_eq(script.count, 1);
	answer(0, 8000);
	cr_assert(done_count == 1 && done_status[0] == 0 && object[0].retries == 0);
}

Test(manager_loader_backend, a_read_that_is_over_at_once_wakes_the_core)
{
	begin_with(plain);
	object[0] = (struct loader_read){.run_count = 1, .done = note_done};
	object[0].run[0] =
		(struct loader_run){.file = (uint32_t)file, .bytes = 8192, .needed_bytes = 0, .memory = memory};
	loader_submit(loader, &object[0]);
	cr_assert(done_count == 0 && script.nudges == 1, "done is called by loader_reap only");
	cr_assert_eq(loader_reap(loader), 1);
	cr_assert(done_count == 1 && done_status[0] == 0);
}

Test(manager_loader_backend, room_is_bounded_and_comes_back_before_done)
{
	begin_with((struct loader_setup){.reads_in_flight_max = 2, .chunk_bytes = 8192, .force_buffered = 1});
	submit(0, 0, 8192);
	cr_assert(loader_has_room(loader, (uint32_t)file));
	submit(1, 8192, 8192);
	cr_assert_not(loader_has_room(loader, (uint32_t)file));
	cr_assert_eq(loader_oldest_ns(loader, (uint32_t)file), object[0].submitted_ns);
	answer(0, 8192);
	cr_assert(loader_has_room(loader, (uint32_t)file));
	cr_assert_eq(loader_in_flight(loader), 1);
	cr_assert_eq(loader_oldest_ns(loader, (uint32_t)file), object[1].submitted_ns);
}

Test(manager_loader_backend, closing_reports_every_read_once)
{
	begin_with((struct loader_setup){
		.reads_in_flight_max = 4, .chunk_bytes = 8192, .chunk_depth = 2, .force_buffered = 1});
	submit(0, 0, 16384);
	submit(1, 16384, 8192);
	loader = loader_close(loader);
	cr_assert_eq(done_count, 2);
	cr_assert_eq(done_status[done_order[0] == 0 ? 0 : 1], 0, "all of it was in flight");
	cr_assert_eq(done_status[done_order[0] == 1 ? 0 : 1], -ECANCELED, "nothing of it was");
}

Test(manager_loader_backend, the_cause_of_the_fallback_is_kept_once)
{
	struct loader_status status;

	begin_with(plain);
	loader_note(script.backend.status, "no ring in this test");
	loader_get_status(loader, &status);
	cr_assert_str_eq(status.reason, "no ring in this test");
	for (int i = 0; i < 50; i++)
		loader_note(script.backend.status, "another cause %d", i);
	loader_get_status(loader, &status);
	cr_assert_lt(strlen(status.reason), sizeof(status.reason));
}
