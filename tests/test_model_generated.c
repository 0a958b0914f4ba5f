/* SPDX-License-Identifier: Apache-2.0 */
/* cnre-gen as a program: what it writes is a catalog, verifies, and is kept; what it cannot write leaves nothing behind. */
#include "model/catalog.h"
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 48
#define SHAPE                                                                                                       \
	"--family", "olmoe", "--layers", "2", "--experts", "4", "--top-k", "2", "--hidden", "64", "--intermediate", \
		"32", "--vocab", "64"

static struct folder folder;
static char output[4096]; /* of the last run: standard output and error */

static const char *program_name = "cnre-gen"; /* of the next run */

static const char *program(void)
{
	static char path[4096];
	const char *build = getenv("CNRE_BUILD");

	if (build == NULL)
		build = getenv("BUILD");
	(void)snprintf(path, sizeof path, "%s/%s", build != NULL ? build : "build", program_name);
	if (access(path, X_OK) != 0)
		cr_skip("no %s: make it first, or set CNRE_BUILD", path);
	return path;
}

static void make(void)
{
	folder_make(&folder);
}

static void clean(void)
{
	folder_remove(&folder);
}

TestSuite(model_generated, .init = make, .fini = clean, .timeout = 120);

static void in_child(char **arguments, int out, rlim_t file_bytes_max)
{
	struct rlimit limit = {file_bytes_max, file_bytes_max};

	(void)dup2(out, STDOUT_FILENO);
	(void)dup2(out, STDERR_FILENO);
	if (file_bytes_max != RLIM_INFINITY) {
		(void)signal(SIGXFSZ, SIG_IGN);
		(void)setrlimit(RLIMIT_FSIZE, &limit);
	}
	(void)execv(arguments[0], arguments);
	_exit(127);
}

static int run_limited(rlim_t file_bytes_max, va_list list)
{
	char *arguments[ARGUMENTS_MAX] = {(char *)program()};
	size_t used = 0;
	int out[2], status = 0, i;
	ssize_t n;
	pid_t child;

	for (i = 1; i < ARGUMENTS_MAX - 1 && (arguments[i] = va_arg(list, char *)) != NULL; i++)
		;
	cr_assert_eq(pipe2(out, O_CLOEXEC), 0);
	child = fork();
	if (child == 0)
		in_child(arguments, out[1], file_bytes_max);
	(void)close(out[1]);
	while (used < sizeof output - 1 && (n = read(out[0], output + used, sizeof output - 1 - used)) > 0)
		used += (size_t)n;
	output[used] = '\0';
	(void)close(out[0]);
	cr_assert_eq(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Exit status of cnre-gen with these arguments, up to NULL. */
static int run(const char *first, ...)
{
	va_list list;
	int status;

	(void)first;
	va_start(list, first);
	status = run_limited(RLIM_INFINITY, list);
	va_end(list);
	return status;
}
#define RUN(...) run("", __VA_ARGS__, NULL)

static struct model_catalog *opened(void)
{
	struct model_catalog *catalog = NULL;
	char message[MODEL_MESSAGE_BYTES];

	cr_assert_eq(model_catalog_open(&catalog, folder.path, message), 0, "%s", message);
	return catalog;
}

static int generate(const char *format)
{
	return RUN(SHAPE, "--seed", "5", "--expert-format", format, "--out", folder.path);
}

Test(model_generated, every_format_is_a_catalog_and_verifies)
{
	static const struct {
		const char *format;
		uint64_t bytes;
	} cases[] = {{"int8-row", 3 * 32 * 64 + 4 * 128},
		     {"bf16", 6 * 32 * 64},
		     {"f16", 6 * 32 * 64},
		     {"f32", 12 * 32 * 64}};

	for (size_t i = 0; i < 4; i++) {
		struct model_catalog *catalog;

		cr_assert_eq(generate(cases[i].format), 0, "%s", output);
		cr_expect_eq(RUN("--verify", folder.path), 0, "%s", output);
		catalog = opened();
		cr_expect_eq(catalog->object_count, 8);
		cr_expect_eq(catalog->top_k, 2);
		cr_expect_eq(catalog->payload_bytes_max, cases[i].bytes, "%s", cases[i].format);
		(void)model_catalog_close(catalog);
		clean();
		make();
	}
}

Test(model_generated, the_same_seed_gives_the_same_bytes_and_another_does_not)
{
	struct model_catalog *first, *second;
	struct folder kept = folder;

	cr_assert_eq(generate("int8-row"), 0, "%s", output);
	first = opened();
	folder_make(&folder);
	cr_assert_eq(generate("int8-row"), 0, "%s", output);
	second = opened();
	cr_expect_eq(memcmp(&first->fingerprint, &second->fingerprint, sizeof first->fingerprint), 0);
	(void)model_catalog_close(second);
	(void)model_catalog_close(first);
	cr_expect_eq(RUN(SHAPE, "--seed", "6", "--out", folder.path), 1,
		     "another seed must not mix with what is there");
	cr_expect(strstr(output, "--force") != NULL, "%s", output);
	cr_expect_eq(RUN(SHAPE, "--seed", "6", "--out", folder.path, "--force"), 0, "%s", output);
	cr_expect_eq(RUN("--verify", folder.path), 0, "%s", output);
	folder_remove(&kept);
}

static void flip(const char *name, off_t offset)
{
	unsigned char byte = 0;
	char path[256];
	int fd = open(folder_path(&folder, name, path, sizeof path), O_RDWR | O_CLOEXEC);

	cr_assert_eq(pread(fd, &byte, 1, offset), 1);
	byte ^= 1;
	cr_assert_eq(pwrite(fd, &byte, 1, offset), 1);
	(void)close(fd);
}

Test(model_generated, verify_names_the_tensor_of_a_flipped_bit)
{
	struct model_catalog *catalog;
	uint64_t offset;

	cr_assert_eq(generate("int8-row"), 0, "%s", output);
	catalog = opened();
	offset = catalog->object[5].piece[4].file_off; /* the up scales of layer 1, expert 1 */
	(void)model_catalog_close(catalog);
	flip("model-00001-of-00001.safetensors", (off_t)offset);
	cr_expect_eq(RUN("--verify", folder.path), 1);
	cr_expect(strstr(output, "model.layers.1.mlp.experts.1.qs differs from byte 128") != NULL, "%s", output);
}

Test(model_generated, an_identical_checkpoint_is_kept_and_an_interrupted_one_completed)
{
	char path[256];

	cr_assert_eq(RUN(SHAPE, "--seed", "5", "--shard-bytes", "20K", "--out", folder.path), 0, "%s", output);
	cr_expect_eq(strncmp(output, "wrote", 5), 0, "%s", output);
	cr_assert_eq(RUN(SHAPE, "--seed", "5", "--shard-bytes", "20K", "--out", folder.path), 0, "%s", output);
	cr_expect_eq(strncmp(output, "kept", 4), 0, "%s", output);
	cr_assert_eq(unlink(folder_path(&folder, "config.json", path, sizeof path)), 0);
	cr_assert_eq(truncate(folder_path(&folder, "model-00002-of-00013.safetensors", path, sizeof path), 100), 0,
		     "another number of shards than expected: %s", output);
	cr_expect_eq(RUN(SHAPE, "--seed", "5", "--shard-bytes", "20K", "--out", folder.path), 0, "%s", output);
	cr_expect_eq(RUN("--verify", folder.path), 0, "%s", output);
	(void)model_catalog_close(opened());
}

/* Both records are a multiple of 4096 here, as they are in models of real size. */
Test(model_generated, experts_are_aligned_unless_asked_otherwise)
{
	struct model_catalog *catalog;
	struct model_plan plan;
	uint32_t i, moves = 0;

#define WIDE                                                                                                         \
	"--family", "olmoe", "--layers", "1", "--experts", "4", "--top-k", "2", "--hidden", "512", "--intermediate", \
		"256", "--vocab", "64", "--seed", "1"
	cr_assert_eq(RUN(WIDE, "--out", folder.path), 0, "%s", output);
	catalog = opened();
	for (i = 0; i < catalog->object_count; i++) {
		model_plan(catalog, i, &plan);
		cr_expect_eq(catalog->object[i].piece[0].file_off % 4096, 0);
		cr_expect_eq(plan.run_count, 1);
		cr_expect_eq(plan.move_count, 0);
		cr_expect_eq(plan.run[0].bytes, plan.run[0].needed_bytes);
	}
	(void)model_catalog_close(catalog);
	cr_assert_eq(RUN(WIDE, "--out", folder.path, "--unaligned", "--force"), 0, "%s", output);
	cr_expect_eq(RUN("--verify", folder.path), 0, "%s", output);
	catalog = opened();
	for (i = 0; i < catalog->object_count; i++) {
		model_plan(catalog, i, &plan);
		moves += plan.move_count;
	}
	cr_expect_gt(moves, 0, "nothing was unaligned");
	(void)model_catalog_close(catalog);
}

Test(model_generated, a_mixed_layer_has_its_own_size)
{
	struct model_catalog *catalog;

	cr_assert_eq(RUN(SHAPE, "--seed", "5", "--mixed-layer", "1:f32", "--out", folder.path), 0, "%s", output);
	catalog = opened();
	cr_expect_eq(catalog->shape_count, 2);
	cr_expect_eq(catalog->payload_bytes_max, 12 * 32 * 64);
	cr_expect_eq(catalog->payload_bytes_min, 3 * 32 * 64 + 4 * 128);
	(void)model_catalog_close(catalog);
}

static unsigned count_distinct_tokens(const char *json)
{
	const char *at = strchr(json, '[');
	unsigned char seen[2048] = {0};
	unsigned count = 0, token;
	int n;

	for (; at != NULL && *at != ']' && sscanf(at + 1, "%u%n", &token, &n) == 1 && token < sizeof seen; at += 1 + n)
		count += !seen[token]++;
	return count;
}

/* A text that circles among a few tokens would make every cache look good. */
Test(model_generated, greedy_decoding_of_a_generated_model_keeps_moving)
{
	static const char *const kinds[] = {"uniform", "olmoe", "glm"};

	for (size_t i = 0; i < 3; i++) {
		program_name = "cnre-gen";
		cr_assert_eq(RUN("--family", "olmoe", "--layers", "2", "--experts", "32", "--top-k", "4", "--hidden",
				 "128", "--intermediate", "32", "--vocab", "2048", "--seed", "3", "--force",
				 "--popularity", kinds[i], "--out", folder.path),
			     0, "%s", output);
		program_name = "cnre-olmoe";
		cr_assert_eq(RUN("--model", folder.path, "--tokens", "5 900 77 1500", "--steps", "120", "--cache",
				 "private:8slots", "--threads", "1", "--json"),
			     0, "%s", output);
		cr_expect_gt(count_distinct_tokens(output), 25, "%s: %s", kinds[i], output);
	}
}

static int run_with_room(rlim_t file_bytes_max, const char *first, ...)
{
	va_list list;
	int status;

	(void)first;
	va_start(list, first);
	status = run_limited(file_bytes_max, list);
	va_end(list);
	return status;
}

/* A file size limit stands in for a full drive: the call that asks for room fails in the same place. */
Test(model_generated, no_room_is_one_line_and_leaves_nothing)
{
	struct dirent *entry;
	DIR *directory;

	cr_expect_eq(run_with_room(16384, "", SHAPE, "--seed", "5", "--out", folder.path, NULL), 1, "%s", output);
	cr_expect(strchr(output, '\n') == output + strlen(output) - 1, "not one line: %s", output);
	cr_expect(strstr(output, "model-00001-of-00001.safetensors") != NULL, "%s", output);
	directory = opendir(folder.path);
	cr_assert_not_null(directory);
	while ((entry = readdir(directory)) != NULL)
		cr_expect(entry->d_name[0] == '.', "%s was left", entry->d_name);
	(void)closedir(directory);
}

Test(model_generated, usage_errors_are_status_2_and_say_what)
{
	static const struct {
		const char *option, *value, *part;
	} cases[] = {
		{"--layers", "0", "--layers 0"},
		{"--layers", "x", "--layers x"},
		{"--experts", "99999", "1 to 4096"},
		{"--top-k", "5", "--top-k 5"},
		{"--heads", "7", "--heads"},
		{"--expert-format", "int3", "int8-row"},
		{"--popularity", "flat", "uniform"},
		{"--seed", "-1", "--seed"},
		{"--shard-bytes", "0", "--shard-bytes"},
		{"--mixed-layer", "2:bf16", "2 layers"},
		{"--mixed-layer", "bf16", "LAYER:FORMAT"},
		{"--family", "gpt", "olmoe"},
		{"--nonsense", "1", "--nonsense"},
		{"--dense-format", "int8-row", "--dense-format"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		cr_expect_eq(RUN(SHAPE, "--seed", "5", "--out", folder.path, cases[i].option, cases[i].value), 2,
			     "%s: %s", cases[i].option, output);
		cr_expect(strstr(output, cases[i].part) != NULL, "no \"%s\" in: %s", cases[i].part, output);
	}
	cr_expect_eq(RUN("--out", folder.path), 2);
	cr_expect(strstr(output, "--layers is missing") != NULL, "%s", output);
	cr_expect_eq(RUN("--help"), 0);
	cr_expect_eq(RUN("--version"), 0);
	cr_expect_eq(strncmp(output, "cnre-gen ", 9), 0);
}

Test(model_generated, only_what_cnre_gen_made_can_be_verified)
{
	cr_expect_eq(RUN("--verify", folder.path), 1);
	cr_expect(strstr(output, "cnre-gen.json") != NULL, "%s", output);
	folder_write(&folder, "cnre-gen.json", "{\"layers\":-1}", 13);
	cr_expect_eq(RUN("--verify", folder.path), 1);
	cr_expect(strstr(output, "not its stamp") != NULL, "%s", output);
}
