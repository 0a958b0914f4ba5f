/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of checkpoints that are large, or too short, from outside: headers beyond a hundred megabytes, tensors beyond two
 * gibibytes in files beyond four, and shards that lack a byte, a page or an expert. What is too short is refused by name with
 * what it lacks; and weights are never served from a mapping of a file, whose missing pages would be zeros or a signal.
 */
#include "cnre/cnre.h"
#include "tests/support/truth.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(system_checkpoints, .timeout = 280);

enum { LAYERS = 4, EXPERTS = 16 };
#define ACQUIRE_NS 60000000000

static struct world world;

static void shard_path(const char *model, char path[256])
{
	(void)snprintf(path, 256, "%s/model-00001-of-00001.safetensors", model);
	if (access(path, F_OK) < 0)
		(void)snprintf(path, 256, "%s/model.safetensors", model);
}

static uint64_t size_of(const char *path)
{
	struct stat status;

	cr_assert_eq(stat(path, &status), 0, "%s", path);
	return (uint64_t)status.st_size;
}

static void put(int fd, const void *bytes, size_t count, uint64_t off)
{
	cr_assert_eq(pwrite(fd, bytes, count, (off_t)off), (ssize_t)count, "%s", strerror(errno));
}

/* ---- a long header (C1) ---- */

#define MANY 1290000u
#define MANY_HEADER 132095296ull

/* The shard again, its header as long as that of a published file, with as many tensors: those added are empty. */
static void lengthen_header(const char *model)
{
	char path[256], *text = malloc(MANY_HEADER);
	uint64_t header = 0, bytes, used;
	unsigned char *old;
	FILE *file;

	shard_path(model, path);
	bytes = size_of(path);
	old = malloc(bytes);
	file = fopen(path, "r+e");
	cr_assert(file != NULL && text != NULL && old != NULL && fread(old, 1, bytes, file) == bytes);
	memcpy(&header, old, sizeof header); /* little-endian, as this machine */
	memcpy(text, old + 8, header);
	for (used = header; text[used - 1] != '}'; used--) /* blanks may follow */
		;
	used--;
	for (unsigned i = 0; i < MANY; i++)
		used += (uint64_t)sprintf(text + used, ",\"more.%07u\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
					  (unsigned)(i * 7919ull % MANY));
	text[used++] = '}';
	cr_assert_leq(used, MANY_HEADER);
	memset(text + used, ' ', MANY_HEADER - used);
	put(fileno(file), &(uint64_t){MANY_HEADER}, 8, 0);
	put(fileno(file), text, MANY_HEADER, 8);
	put(fileno(file), old + 8 + header, bytes - 8 - header, 8 + MANY_HEADER);
	(void)fclose(file);
	free(old);
	free(text);
}

static void run_engine(const char *model, char output[4096])
{
	cr_assert_eq(world_run("cnre-olmoe",
			       (const char *const[]){"--model", model, "--tokens", "5 6 7", "--steps", "3", "--cache",
						     "private:1M", NULL},
			       output, 4096),
		     0, "%s", output);
	output[strcspn(output, "\n")] = '\0';
}

Test(system_checkpoints, a_header_of_132_megabytes_is_served_and_attached_to)
{
	char whole[256], expected[4096], found[4096];
	struct truth *truth;
	struct cnre *client;

	world_open(&world);
	world_generate(&world, NULL);
	(void)snprintf(whole, sizeof whole, "%s/whole", world.directory);
	cr_assert_eq(world_run("/bin/cp", (const char *const[]){"-r", world.model, whole, NULL}, NULL, 0), 0);
	lengthen_header(world.model);
	cr_assert_eq(truth_open(&truth, whole), 0);
	cr_assert_gt(world_start(&world, NULL), 0);
	client = world_attach(&world, 0);
	for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
		cr_assert_eq(truth_check_one(truth, client, i / EXPERTS, i % EXPERTS), 0, "expert %u", i);
	cnre_detach(client);
	truth_close(truth);
	run_engine(whole, expected);
	run_engine(world.model, found);
	cr_expect_str_eq(found, expected);
	world_close(&world);
}

Test(system_checkpoints, a_header_beyond_the_bound_is_refused_with_the_number_before_it_is_read)
{
	static const uint64_t longer = (1ull << 30) + 1;
	char path[256];
	int fd;

	world_open(&world);
	world_generate(&world, NULL);
	shard_path(world.model, path);
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	put(fd, &longer, sizeof longer, 0);
	cr_assert_eq(ftruncate(fd, 3ll << 30), 0);
	(void)close(fd);
	cr_expect_eq(world_start(&world, NULL), -1);
	cr_expect(world_log_has(&world, "1073741825"), "its length is named");
	cr_expect(world_log_has(&world, "1073741824"), "and the bound");
	world_close(&world);
}

/* ---- a large file (C8) ---- */

/* One tensor of 2.5 GiB with the gates and ups of 4096 experts, what is nobody's, and one of 1.25 GiB with the downs. */
enum { FUSED = 4096, WIDTH = 512, INTERMEDIATE = 320 };
#define GATE_BYTES (2ull * INTERMEDIATE * WIDTH) /* and of an up and a down: BF16 */
#define REST_OFF (FUSED * 2 * GATE_BYTES)
#define DOWN_OFF (REST_OFF + FUSED * GATE_BYTES)
#define DATA_BYTES (5ull << 30)

/* The first, those at 2^31 and before 2^32, and the last; all the others are holes. */
static const uint32_t written[] = {0, 1, 818, 819, 820, 3275, 3276, 3277, 4095};

static unsigned char pattern_at(uint32_t expert, int role, uint64_t off)
{
	return (unsigned char)(expert * 31 + (uint32_t)role * 7 + off * 13 + off / 251 + 1);
}

static unsigned char pattern[GATE_BYTES];

static void make_pattern(uint32_t expert, int role)
{
	for (uint64_t i = 0; i < sizeof pattern; i++)
		pattern[i] = pattern_at(expert, role, i);
}

static void write_role(int fd, uint64_t off, uint32_t expert, int role)
{
	make_pattern(expert, role);
	put(fd, pattern, sizeof pattern, off);
}

static void write_sparse(char path[256])
{
	char header[1024], text[320];
	uint64_t length, data;
	FILE *config;
	int fd;

	_Static_assert(DOWN_OFF + FUSED * GATE_BYTES == DATA_BYTES, "5 GiB");
	cr_assert_eq(mkdir(world.model, 0755), 0);
	(void)snprintf(path, 256, "%s/config.json", world.model);
	config = fopen(path, "we");
	cr_assert_not_null(config);
	(void)snprintf(text, sizeof text,
		       "{\"model_type\":\"inkling\",\"num_hidden_layers\":1,\"n_routed_experts\":%d,\"num_experts_per_tok\":2,"
		       "\"hidden_size\":%d,\"moe_intermediate_size\":%d}",
		       FUSED, WIDTH, INTERMEDIATE);
	(void)fputs(text, config);
	(void)fclose(config);
	(void)snprintf(header, sizeof header,
		       "{\"model.layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"BF16\",\"shape\":[%d,%d,%d],"
		       "\"data_offsets\":[0,%llu]},\"rest\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]},"
		       "\"model.layers.0.mlp.experts.down_proj\":{\"dtype\":\"BF16\",\"shape\":[%d,%d,%d],"
		       "\"data_offsets\":[%llu,%llu]}}",
		       FUSED, 2 * INTERMEDIATE, WIDTH, REST_OFF, DOWN_OFF - REST_OFF, REST_OFF, DOWN_OFF, FUSED, WIDTH,
		       INTERMEDIATE, DOWN_OFF, DATA_BYTES);
	length = strlen(header);
	data = sizeof length + length;
	(void)snprintf(path, 256, "%s/model.safetensors", world.model);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	cr_assert(fd >= 0 && ftruncate(fd, (off_t)(data + DATA_BYTES)) == 0, "no sparse files here: %s", strerror(errno));
	put(fd, &length, sizeof length, 0);
	put(fd, header, length, sizeof length);
	for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) {
		write_role(fd, data + written[i] * 2 * GATE_BYTES, written[i], CNRE_GATE);
		write_role(fd, data + written[i] * 2 * GATE_BYTES + GATE_BYTES, written[i], CNRE_UP);
		write_role(fd, data + DOWN_OFF + written[i] * GATE_BYTES, written[i], CNRE_DOWN);
	}
	(void)close(fd);
}

static void expect_pattern(struct cnre *client, uint32_t number, int is_hole)
{
	struct cnre_expert expert;

	cr_assert_eq(cnre_acquire(client, 0, number, ACQUIRE_NS, &expert), 0, "expert %u", number);
	for (int role = CNRE_GATE; role <= CNRE_DOWN; role++) {
		make_pattern(number, role);
		if (is_hole)
			memset(pattern, 0, sizeof pattern);
		cr_assert_eq(expert.part[role].bytes, sizeof pattern);
		cr_assert_eq(memcmp(expert.part[role].data, pattern, sizeof pattern), 0, "expert %u, role %d", number, role);
	}
	cr_assert_eq(cnre_release(client, &expert), 0);
}

static void read_large_file(const char *engine)
{
	struct cnre_expert expert;
	struct cnre *client;
	char path[256];

	world_open(&world);
	write_sparse(path);
	cr_assert_gt(world_start(&world, (const char *const[]){"--ram", "32M", "--hugepages", "4k", "--io", engine, NULL}), 0);
	client = world_attach(&world, 4 << 20);
	for (size_t i = 0; i < sizeof written / sizeof written[0]; i++)
		expect_pattern(client, written[i], 0);
	expect_pattern(client, 2000, 1);
	/* Cut behind the gates and ups of all, while it is served: an error for who needs the rest, and never zeros. */
	cr_assert_eq(truncate(path, (off_t)(4ull << 30)), 0);
	cr_assert_eq(world_run("cnrectl", (const char *const[]){"--socket", world.socket, "reset", NULL}, NULL, 0), 0);
	cr_expect_lt(cnre_acquire(client, 0, 4095, ACQUIRE_NS, &expert), 0);
	cr_expect_eq(world_stat(&world, "resident_objects"), 0);
	expect_pattern(client, 1, 0);
	cnre_detach(client);
	world_close(&world);
}

Test(system_checkpoints, experts_in_a_tensor_beyond_2_gib_of_a_file_beyond_4_arrive_whole_by_io_uring)
{
	read_large_file("uring");
}

Test(system_checkpoints, experts_in_a_tensor_beyond_2_gib_of_a_file_beyond_4_arrive_whole_by_the_pool)
{
	read_large_file("pool");
}

/* ---- a short file (C9) ---- */

Test(system_checkpoints, a_shard_that_lacks_a_byte_a_page_or_an_expert_is_refused_by_name_and_missing_bytes)
{
	static const uint64_t lacking[] = {1, 4096, 3 * 64 * 64 + 4 * 3 * 64};
	char path[256], text[64];
	uint64_t bytes;

	world_open(&world);
	world_generate(&world, (const char *const[]){"--shard-bytes", "300K", NULL});
	(void)snprintf(path, sizeof path, "%s/model-00002-of-00004.safetensors", world.model);
	bytes = size_of(path);
	for (size_t i = 0; i < sizeof lacking / sizeof lacking[0]; i++) {
		(void)unlink(world.log);
		cr_assert_eq(truncate(path, (off_t)(bytes - lacking[i])), 0);
		cr_expect_eq(world_start(&world, NULL), -1);
		(void)snprintf(text, sizeof text, "%llu bytes missing", (unsigned long long)lacking[i]);
		cr_expect(world_log_has(&world, text), "%s", text);
		cr_expect(world_log_has(&world, "model-00002-of-00004.safetensors"));
		cr_expect_not(world_log_has(&world, "model-00001-of-"), "the others are well");
	}
	world_close(&world);
}

/* Pages behind the end of a mapped file are zeros or SIGBUS; and they could not be leased from a budget. */
Test(system_checkpoints, no_process_maps_weights_from_a_file)
{
	char path[64], line[512];
	struct cnre_expert expert;
	struct cnre *client;
	pid_t pid[2];

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	client = world_attach(&world, 0);
	cr_assert_eq(cnre_acquire(client, 1, 2, ACQUIRE_NS, &expert), 0);
	pid[0] = world.manager;
	pid[1] = getpid();
	for (int i = 0; i < 2; i++) {
		FILE *maps;

		(void)snprintf(path, sizeof path, "/proc/%d/maps", (int)pid[i]);
		maps = fopen(path, "re");
		cr_assert_not_null(maps);
		while (fgets(line, sizeof line, maps) != NULL)
			cr_expect_null(strstr(line, ".safetensors"), "%s: %s", i == 0 ? "the manager" : "the client", line);
		(void)fclose(maps);
	}
	cr_assert_eq(cnre_release(client, &expert), 0);
	cnre_detach(client);
	world_close(&world);
}
