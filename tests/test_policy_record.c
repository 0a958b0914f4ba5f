/* SPDX-License-Identifier: Apache-2.0 */
/* The binary trace: what was written is read, and nothing else is. */
#include "policy/record.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MANY UINT64_MAX

static const struct record records[] = {
	{RECORD_VISIT, 0, 0, 1, 0},
	{RECORD_VISIT, 240, 4095, 4096, 0},
	{RECORD_ACCESS, 3, RECORD_OBJECTS_MAX - 1, 1, 0},
	{RECORD_ACCESS, 3, 127, 0, 0},
	{RECORD_TOKEN, UINT32_MAX, 128, 0, 0},
	{RECORD_WAIT, UINT32_MAX, MANY, MANY, MANY},
	{RECORD_LOST, 7, 1u << 31, 0, 0},
	{RECORD_END, 0, MANY, 0, 0},
};
#define RECORDS (sizeof records / sizeof records[0])

static int same_record(const struct record *a, const struct record *b)
{
	return a->kind == b->kind && a->client == b->client && a->a == b->a && a->b == b->b && a->c == b->c;
}

Test(policy_record, records_are_read_as_they_were_written)
{
	unsigned char bytes[RECORDS * RECORD_BYTES_MAX];
	struct record record;
	size_t written = 0, read = 0;

	for (size_t i = 0; i < RECORDS; i++) {
		size_t one = record_put(bytes + written, &records[i]);

		cr_assert_leq(one, RECORD_BYTES_MAX);
		written += one;
	}
	for (size_t i = 0; i < RECORDS; i++) {
		long one = record_get(bytes + read, written - read, &record);

		cr_assert_gt(one, 0);
		cr_assert(same_record(&record, &records[i]));
		read += (size_t)one;
	}
	cr_assert_eq(read, written);
	cr_assert_eq(record_get(bytes + read, 0, &record), 0);
}

Test(policy_record, every_cut_record_needs_more_and_leaves_the_output_alone)
{
	for (size_t i = 0; i < RECORDS; i++) {
		unsigned char bytes[RECORD_BYTES_MAX];
		size_t written = record_put(bytes, &records[i]);

		for (size_t cut = 0; cut < written; cut++) {
			unsigned char *part = malloc(cut > 0 ? cut : 1); /* on the heap: the sanitizer guards its end */
			struct record record = {RECORD_LOST, 11, 12, 13, 14}, before = record;

			memcpy(part, bytes, cut);
			cr_assert_eq(record_get(part, cut, &record), 0);
			cr_assert(same_record(&record, &before));
			free(part);
		}
	}
}

Test(policy_record, bytes_that_are_no_record_are_ebadmsg)
{
	static const struct { const char *what; unsigned char bytes[16]; size_t size; } cases[] = {
		{"tag 6", {6, 0}, 2},
		{"tag 7", {7, 0}, 2},
		{"an integer of more than 64 bits", {3, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2}, 11},
		{"an integer that goes on", {3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81}, 11},
		{"a zero in two bytes", {3, 0x80, 0}, 3},
		{"a client beyond 32 bits", {0x83, 0x80, 0x80, 0x80, 0x80, 1, 1}, 7},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct record record;

		cr_assert_eq(record_get(cases[i].bytes, cases[i].size, &record), -EBADMSG, "%s", cases[i].what);
	}
}

/* ---- headers ---- */

static struct record_layer layers[] = {{3, 256, 19u << 20, 19000000}, {4, 0, 0, 0}, {77, 200, 1, 0}};
static uint32_t residents[] = {455, 0, 130, 127};

static struct record_header some_header(void)
{
	return (struct record_header){
		.layer_count = 3, .top_k = 8, .resident_count = 4, .budget_bytes = UINT64_MAX, .policy = "cost",
		.layer = layers, .resident = residents};
}

static size_t encoded(const struct record_header *header, unsigned char **bytes)
{
	size_t size = 0;

	cr_assert_eq(record_put_header(header, bytes, &size), 0);
	return size;
}

Test(policy_record, header_is_read_as_it_was_written)
{
	struct record_header header = some_header(), read;
	unsigned char *bytes;
	size_t size = encoded(&header, &bytes);

	bytes = realloc(bytes, size + 1);
	bytes[size] = 6; /* what follows is not its business */
	cr_assert_eq(record_get_header(bytes, size + 1, &read), (long)size);
	cr_assert_eq(read.layer_count, 3);
	cr_assert_eq(read.top_k, 8);
	cr_assert_eq(read.budget_bytes, UINT64_MAX);
	cr_assert_str_eq(read.policy, "cost");
	cr_assert_eq(memcmp(read.layer, layers, sizeof layers), 0);
	cr_assert_eq(read.resident_count, 4);
	cr_assert_eq(memcmp(read.resident, residents, sizeof residents), 0);
	record_free_header(&read);
	cr_assert_null(read.layer);
	free(bytes);
}

Test(policy_record, header_without_residents_and_name_is_a_header)
{
	struct record_header header = some_header(), read;
	unsigned char *bytes;
	size_t size;

	header.resident_count = 0;
	header.policy[0] = '\0';
	size = encoded(&header, &bytes);
	cr_assert_eq(record_get_header(bytes, size, &read), (long)size);
	cr_assert_eq(read.resident_count, 0);
	cr_assert_str_empty(read.policy);
	record_free_header(&read);
	free(bytes);
}

Test(policy_record, every_cut_header_needs_more_and_leaves_the_output_alone)
{
	struct record_header header = some_header(), read = {.top_k = 99};
	unsigned char *bytes;
	size_t size = encoded(&header, &bytes);

	for (size_t cut = 0; cut < size; cut++) {
		unsigned char *part = malloc(cut > 0 ? cut : 1);

		memcpy(part, bytes, cut);
		cr_assert_eq(record_get_header(part, cut, &read), 0, "%zu of %zu bytes", cut, size);
		cr_assert_eq(read.top_k, 99);
		cr_assert_null(read.layer);
		free(part);
	}
	free(bytes);
}

/* Goal: no byte of a header can make the reader go wrong. Method: each byte in turn is each of some values. */
Test(policy_record, every_changed_header_is_refused_or_is_a_header, .timeout = 60)
{
	static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0x81, 0xff};
	struct record_header header = some_header(), read;
	unsigned char *bytes;
	size_t size = encoded(&header, &bytes);

	for (size_t at = 0; at < size; at++) {
		for (size_t i = 0; i < sizeof values; i++) {
			unsigned char before = bytes[at];
			long r;

			bytes[at] = values[i];
			r = record_get_header(bytes, size, &read);
			cr_assert(r == 0 || r == -EBADMSG || (r > 0 && r <= (long)size));
			if (r > 0)
				record_free_header(&read);
			bytes[at] = before;
		}
	}
	free(bytes);
}

Test(policy_record, a_header_the_reader_would_refuse_is_not_written)
{
	static struct record_layer two_to_the_63[] = {{0, 2, 1ull << 63, 0}}, two_reads[] = {{0, 2, 1, 1ull << 63}};
	static struct record_layer too_many[] = {{0, RECORD_OBJECTS_MAX, 1, 1}, {1, 1, 1, 1}};
	static struct record_layer no_bytes[] = {{0, 2, 0, 1}}, no_experts[] = {{0, 0, 1, 1}};
	static uint32_t twice[] = {5, 5}, outside[] = {456};
	struct record_header header[9];
	unsigned char *bytes = (unsigned char *)&header;
	size_t size = 7;

	for (size_t i = 0; i < 9; i++)
		header[i] = some_header();
	header[0].layer_count = 0;
	header[1].resident = twice, header[1].resident_count = 2;
	header[2].resident = outside, header[2].resident_count = 1;
	header[3].layer = too_many, header[3].layer_count = 2;
	header[4].layer = no_bytes, header[4].layer_count = 1, header[4].resident_count = 0;
	header[5].layer = no_experts, header[5].layer_count = 1, header[5].resident_count = 0;
	header[6].policy[0] = '\n';
	header[7].layer = two_to_the_63, header[7].layer_count = 1, header[7].resident_count = 0;
	header[8].layer = two_reads, header[8].layer_count = 1, header[8].resident_count = 0;
	header[8].top_k = 1;
	for (size_t i = 0; i < 9; i++)
		cr_assert_eq(record_put_header(&header[i], &bytes, &size), -EINVAL, "case %zu", i);
	memset(header[0].policy, 'x', sizeof header[0].policy);
	header[0].layer_count = 3;
	cr_assert_eq(record_put_header(&header[0], &bytes, &size), -EINVAL);
	cr_assert_eq(bytes, (unsigned char *)&header);
	cr_assert_eq(size, 7);
}

/* Goal: the reader's own half of the same rules. Method: headers by hand, a byte an integer. */
Test(policy_record, hostile_headers_are_ebadmsg)
{
#define HEADER(...) "CNRETRC1" __VA_ARGS__, sizeof("CNRETRC1" __VA_ARGS__) - 1
	static const struct { const char *what, *bytes; size_t size; } cases[] = {
		{"another magic", "CNRETRC2", 8},
		{"another magic, cut", "CNRX", 4},
		{"no layers", HEADER("\0" "\1\0\0\0")},
		{"4097 layers", HEADER("\x81\x20")},
		{"a layer number beyond 32 bits", HEADER("\1" "\x80\x80\x80\x80\x10" "\4\1\1" "\1\0\0\0")},
		{"2^24 + 1 experts", HEADER("\1" "\0\x81\x80\x80\x08\1\1" "\1\0\0\0")},
		{"no experts", HEADER("\1" "\0\0\1\1" "\1\0\0\0")},
		{"experts without bytes", HEADER("\1" "\0\1\0\1" "\1\0\0\0")},
		{"top-k of 5 of 4", HEADER("\1" "\0\4\1\1" "\1\5\0\0")},
		{"a name of 32 bytes", HEADER("\1" "\0\4\1\1" "\1\0\x20")},
		{"a name with a NUL", HEADER("\1" "\0\4\1\1" "\1\0\2" "a\0" "\0")},
		{"a name with a line end", HEADER("\1" "\0\4\1\1" "\1\0\2" "a\n" "\0")},
		{"a name of bytes above ASCII", HEADER("\1" "\0\4\1\1" "\1\0\2" "a\xff" "\0")},
		{"2^24 + 1 residents", HEADER("\1" "\0\4\1\1" "\1\0\0" "\x81\x80\x80\x08")},
		{"more residents than objects", HEADER("\1" "\0\4\1\1" "\1\0\0" "\5\0\1\2\3\0")},
		{"a resident that is no object", HEADER("\1" "\0\4\1\1" "\1\0\0" "\1\4")},
		{"a resident twice", HEADER("\1" "\0\4\1\1" "\1\0\0" "\2\3\3")},
	};
	struct record_header read = {.top_k = 99};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		cr_assert_eq(record_get_header((const unsigned char *)cases[i].bytes, cases[i].size, &read), -EBADMSG,
			     "%s", cases[i].what);
	cr_assert_eq(read.top_k, 99);
}

/* Goal: a header of a few bytes costs a few bytes. Method: memory for 2^24 - 1 residents is more than is left. */
Test(policy_record, residents_that_are_only_promised_cost_no_memory)
{
	static const char header[] = "CNRETRC1" "\1" "\0\x80\x80\x80\x08\1\1" "\1\0\0" "\xff\xff\xff\x07";
	struct record_header read;
	struct rlimit limit;
	unsigned long pages;
	FILE *statm = fopen("/proc/self/statm", "re");

	cr_assert(statm != NULL && fscanf(statm, "%lu", &pages) == 1);
	(void)fclose(statm);
	limit.rlim_cur = limit.rlim_max = pages * (rlim_t)sysconf(_SC_PAGESIZE) + (16u << 20);
	cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
	cr_assert_eq(record_get_header((const unsigned char *)header, sizeof header - 1, &read), 0);
}
