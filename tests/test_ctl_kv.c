/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl kv: its words and files, what is asked, what a person reads, and conversion without a manager. */
#include "tools/ctl/run.h"

#include "base/payload.h"
#include "kvstore/prefix_file.h"
#include "tests/support/coli_file.h"
#include "tests/support/fake_manager.h"
#include "tests/support/folder.h"
#include "tools/ctl/options.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct folder folder;

static void make(void)
{
	folder_make(&folder);
}

static void clean(void)
{
	folder_remove(&folder);
}

TestSuite(ctl_kv, .init = make, .fini = clean, .timeout = 30);

#define KEY "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define WORDS_MAX 40

static char message[CTL_MESSAGE_BYTES];
static struct options options;

/* Splits a line at spaces, with every @ replaced by the test's folder, and parses it as the command line is. */
static int parse(const char *line)
{
	static char copy[4096];
	char *argv[WORDS_MAX] = {"cnrectl"};
	size_t at = 0;
	int argc = 1;

	for (; *line != '\0' && at < sizeof copy - sizeof folder.path; line++)
		if (*line == '@')
			at += (size_t)snprintf(copy + at, sizeof copy - at, "%s", folder.path);
		else
			copy[at++] = *line;
	copy[at] = '\0';
	for (char *word = strtok(copy, " "); word != NULL && argc < WORDS_MAX - 1; word = strtok(NULL, " "))
		argv[argc++] = word;
	message[0] = '\0';
	return options_parse(argc, argv, &options, message);
}

/* The request as text, allocated; NULL: refused. */
static char *request_of(const char *line)
{
	json_t *request = NULL;
	char *text;

	if (parse(line) < 0 || verb_kv.request(options.word_count, options.word, &request, message) < 0)
		return NULL;
	text = json_dumps(request, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(request);
	return text;
}

static void expect_request(const char *line, const char *expected)
{
	char *text = request_of(line);

	cr_assert_not_null(text, "%s: %s", line, message);
	cr_expect_str_eq(text, expected);
	free(text);
}

static void expect_contains(const char *output, const char *part)
{
	cr_expect_not_null(strstr(output, part), "no \"%s\" in:\n%s", part, output);
}

/* ---- words ---- */

Test(ctl_kv, words_become_requests)
{
	expect_request("kv", "{\"verb\":\"kv\"}");
	expect_request("kv export " KEY " @/out", "{\"action\":\"export\",\"key\":\"" KEY "\",\"verb\":\"kv\"}");
	expect_request("kv import @/in", "{\"action\":\"import\",\"verb\":\"kv\"}");
	expect_request("kv import --namespace u1000 @/in --json",
		       "{\"action\":\"import\",\"namespace\":\"u1000\",\"verb\":\"kv\"}");
	cr_expect(options.as_json);
	expect_request("kv import @/in --namespace=a=b",
		       "{\"action\":\"import\",\"namespace\":\"a=b\",\"verb\":\"kv\"}");
}

Test(ctl_kv, wrong_words_are_refused_with_a_reason)
{
	static const char *const bad[] = {
		"kv now",
		"kv export",
		"kv export " KEY,
		"kv export " KEY " a b",
		"kv export 0123 out",
		"kv export " KEY "0 out",
		"kv export 0X112233445566778899aabbccddeeff00112233445566778899aabbccddeeff out",
		"kv import",
		"kv import a b",
		"kv import a --namespace",
		"kv --namespace x import a",
		"kv export " KEY " out --namespace x",
		"kv convert in out",
		"kv convert in --model d --position p --representation r",
		"kv convert in out --model d --position p",
		"kv convert in out --model d --representation r",
		"kv convert in out --position p --representation r",
		"kv convert in out --model d --position p --representation r --block-tokens 0",
		"kv convert in out --model d --position p --representation r --block-tokens 257",
		"kv convert in out --model d --position p --representation r --version -1",
		"kv convert in out --model d --position p --representation r --version 4294967296",
		"kv convert in out --model d --position p --representation r --version 1x",
		"kv convert in out --model d --position p --representation r --ram 1G",
		"status --namespace x",
	};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		char *text = request_of(bad[i]);

		cr_expect_null(text, "accepted: %s", bad[i]);
		cr_expect_neq(message[0], '\0', "no reason: %s", bad[i]);
		free(text);
	}
}

/* The program's --version still is what it was, before the verb and behind others. */
Test(ctl_kv, version_is_the_verb_s_own_only_behind_convert)
{
	cr_assert_eq(parse("kv convert in out --version 2"), 0);
	cr_expect_not(options.wants_version);
	cr_assert_eq(parse("kv --version"), 0);
	cr_expect(options.wants_version);
	cr_assert_eq(parse("--version kv convert in out"), 0);
	cr_expect(options.wants_version);
}

Test(ctl_kv, only_the_question_may_be_repeated)
{
	cr_assert_eq(parse("kv"), 0);
	cr_expect_not(verb_kv.is_order(options.word_count, options.word));
	cr_assert_eq(parse("kv export " KEY " out"), 0);
	cr_expect(verb_kv.is_order(options.word_count, options.word));
	cr_assert_eq(parse("kv import in"), 0);
	cr_expect(verb_kv.is_order(options.word_count, options.word));
	cr_expect_not(verb_kv.is_local(options.word_count, options.word));
}

/* ---- files ---- */

static int file_of(const char *line)
{
	cr_assert_eq(parse(line), 0, "%s", message);
	return verb_kv.file(options.word_count, options.word, message);
}

static char *path_of(const char *name, char text[256])
{
	return (char *)folder_path(&folder, name, text, 256);
}

Test(ctl_kv, export_creates_a_private_file_and_writes_over_none)
{
	char path[256];
	struct stat status;
	int fd = file_of("kv export " KEY " @/out");

	cr_assert_geq(fd, 0, "%s", message);
	cr_assert_eq(fstat(fd, &status), 0);
	cr_expect_eq(status.st_mode & 0777, 0600);
	cr_expect_eq(file_of("kv export " KEY " @/out"), -EEXIST);
	expect_contains(message, "never written over");
	cr_assert_eq(write(fd, "half", 4), 4);
	verb_kv.abandon_file(options.word_count, options.word);
	cr_expect_eq(access(path_of("out", path), F_OK), -1, "what a failed export left is gone");
	close(fd);
}

/* A prefix of one block under the test's folder. */
static void write_prefix(const char *name)
{
	struct kv_block block = {.block_tokens = 4, .token_count = 4, .bytes = 5, .mark = {.first = 4}};
	struct kv_prefix_writer writer;
	char path[256];
	int fd = open(path_of(name, path), O_WRONLY | O_CREAT | O_EXCL, 0600);

	kv_check_payload("12345", 5, block.check);
	cr_assert_eq(kv_key_block(block.parent, block.token, 4, &block.mark, block.key), 0);
	cr_assert_eq(kv_prefix_begin(&writer, fd), 0);
	cr_assert_eq(kv_prefix_add(&writer, &block, "12345"), 0);
	cr_assert_eq(kv_prefix_end(&writer, NULL), 0);
	close(fd);
}

Test(ctl_kv, import_refuses_what_is_no_prefix_before_anybody_is_asked)
{
	char path[256];
	int fd;

	write_prefix("good");
	folder_write(&folder, "bad", "hello", 5);
	cr_expect_eq(file_of("kv import @/none"), -ENOENT);
	cr_expect_eq(file_of("kv import @/bad"), -EBADMSG);
	expect_contains(message, "/bad: ");
	cr_assert_eq(mkfifo(path_of("fifo", path), 0600), 0);
	cr_expect_eq(file_of("kv import @/fifo"), -EINVAL, "and is not waited for");
	fd = file_of("kv import @/good");
	cr_assert_geq(fd, 0, "%s", message);
	cr_expect_eq(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	verb_kv.abandon_file(options.word_count, options.word);
	cr_expect_eq(access(path_of("good", path), F_OK), 0, "a refused import leaves the file");
	close(fd);
}

Test(ctl_kv, show_and_convert_send_no_file)
{
	cr_expect_eq(file_of("kv"), VERB_NO_FILE);
	cr_expect_eq(file_of("kv convert a b --model d --position p --representation r"), VERB_NO_FILE);
}

/* ---- answers ---- */

/* The output for one answer, allocated; NULL with message set. `line` says what is asked, and file goes with it. */
static char *output_of(const char *line, const char *text, const int *file, struct fake_manager *manager)
{
	char *request = request_of(line), *output = NULL;
	struct run run = {
		.verb = &verb_kv, .request = request, .file = file, .stop_fd = -1, .as_json = options.as_json};

	cr_assert_not_null(request, "%s", message);
	manager->text = text;
	cr_assert_eq(fake_manager_start(manager), 0);
	run.places.given = manager->path;
	(void)run_once(&run, &output, message);
	fake_manager_stop(manager);
	free(request);
	return output;
}

static const char store_text[] =
	"{\"budget_bytes\":8589934592,\"resident_bytes\":1073741824,\"pool_bytes\":2147483648,\"disk\":{\"directory\":\"/var/kv\","
	"\"files\":1234,\"bytes\":4294967296,\"limit_bytes\":107374182400,\"written\":1000,\"read\":200,\"syscalls\":1500,"
	"\"errors\":2,\"quarantined\":1,\"last_error\":\"No space left\\u001b on device\"},\"namespaces\":[{\"name\":\"u1000\","
	"\"clients\":2,\"blocks\":500,\"resident_blocks\":90,\"resident_bytes\":1073741824,\"disk_blocks\":480,\"pinned_blocks\":7,"
	"\"matches\":42,\"hit_tokens\":31337,\"time_avoided_s\":75.5,\"published\":510,\"publish_failed\":3,\"evictions\":11,"
	"\"prefixes\":[{\"key\":\"" KEY
	"\",\"tokens\":4096,\"bytes\":745537536,\"uses\":17,\"time_avoided_s\":61.25}]}]}";

Test(ctl_kv, store_is_shown_whole)
{
	struct fake_manager manager = {.behaviour = FAKE_ANSWERS};
	char *output = output_of("kv", store_text, NULL, &manager);

	cr_assert_not_null(output, "%s", message);
	cr_expect_str_eq(manager.asked, "{\"verb\":\"kv\"}");
	expect_contains(output, "1.0 GiB resident of 8.0 GiB; pool 2.0 GiB");
	expect_contains(output,
			"/var/kv: 1,234, 4.0 GiB of 100.0 GiB; 1,000 written, 200 read, 1.25 system calls each");
	expect_contains(output, "FAILED     2 times, 1 files in quarantine; last: No space left? on device");
	expect_contains(output, "u1000: 2 clients; 500 blocks: 90 (1.0 GiB) in memory, 7 of them pinned, 480 in files");
	expect_contains(output, "42 matches, 31,337 tokens not computed again, 75.5 s avoided");
	expect_contains(output, "510 published, 11 evicted, 3 FAILED to be published");
	expect_contains(output, KEY);
	expect_contains(output, "4,096");
	expect_contains(output, "61.2 s");
	free(output);
}

Test(ctl_kv, damaged_files_are_no_failed_operation)
{
	struct fake_manager manager = {.behaviour = FAKE_ANSWERS};
	char *output = output_of("kv",
				 "{\"budget_bytes\":1,\"resident_bytes\":0,\"pool_bytes\":0,\"disk\":{\"directory\":\"/kv\",\"files\":1,"
				 "\"bytes\":1,\"limit_bytes\":0,\"written\":0,\"read\":0,\"syscalls\":0,\"errors\":0,\"quarantined\":2,"
				 "\"last_error\":\"bad\"},\"namespaces\":[]}",
				 NULL, &manager);

	cr_assert_not_null(output, "%s", message);
	expect_contains(output, "DAMAGED    2 files, now in quarantine; last: bad");
	cr_expect_null(strstr(output, "FAILED"));
	free(output);
}

Test(ctl_kv, store_without_files_and_without_namespaces)
{
	struct fake_manager manager = {.behaviour = FAKE_ANSWERS};
	char *output = output_of(
		"kv", "{\"budget_bytes\":1,\"resident_bytes\":0,\"pool_bytes\":0,\"disk\":null,\"namespaces\":[]}",
		NULL, &manager);

	cr_assert_not_null(output, "%s", message);
	expect_contains(output, "--kv-dir");
	expect_contains(output, "no namespaces");
	free(output);
}

Test(ctl_kv, no_store_is_one_line_that_says_what_to_set)
{
	struct fake_manager manager = {.behaviour = FAKE_ANSWERS};
	char *output = output_of("kv", "{\"enabled\":false}", NULL, &manager);

	cr_assert_not_null(output, "%s", message);
	expect_contains(output, "--kv-ram SIZE");
	cr_expect_eq(strchr(output, '\n'), output + strlen(output) - 1);
	free(output);
}

Test(ctl_kv, a_missing_field_is_named)
{
	struct fake_manager manager = {.behaviour = FAKE_ANSWERS};

	cr_expect_null(output_of("kv", "{\"budget_bytes\":1,\"resident_bytes\":0,\"pool_bytes\":0,\"namespaces\":[]}",
				 NULL, &manager));
	expect_contains(message, "\"disk\"");
}

Test(ctl_kv, json_is_passed_on)
{
	struct fake_manager manager = {.behaviour = FAKE_ANSWERS};
	char *output = output_of("kv --json", "{\"enabled\":false}", NULL, &manager);

	cr_expect_str_eq(output, "{\"enabled\":false}\n");
	free(output);
}

Test(ctl_kv, files_travel_with_the_request)
{
	struct fake_manager manager = {.behaviour = FAKE_ANSWERS};
	int fd = file_of("kv export " KEY " @/out");
	struct stat status;
	char *output;

	cr_assert_geq(fd, 0, "%s", message);
	output =
		output_of("kv export " KEY " @/out", "{\"blocks\":3,\"tokens\":1192,\"bytes\":2097152}", &fd, &manager);
	cr_assert_not_null(output, "%s", message);
	cr_expect_str_eq(output, "exported 3 blocks, 1,192 tokens, 2.0 MiB\n");
	cr_assert_eq(fstat(fd, &status), 0);
	cr_expect_eq(manager.file_count, 1);
	cr_expect_eq(manager.file_inode, (uint64_t)status.st_ino);
	free(output);
	close(fd);
}

Test(ctl_kv, import_says_what_was_there)
{
	struct fake_manager manager = {.behaviour = FAKE_ANSWERS};
	char *output;
	int fd;

	write_prefix("in");
	fd = file_of("kv import @/in");
	output = output_of("kv import @/in", "{\"blocks\":3,\"present\":2,\"tokens\":192}", &fd, &manager);
	cr_assert_not_null(output, "%s", message);
	cr_expect_str_eq(output, "imported 3 blocks, 192 tokens; 2 blocks were there already\n");
	cr_expect_eq(manager.file_count, 1);
	free(output);
	close(fd);
}

/* ---- conversion ---- */

static const struct coli_file saved = {.layers = 2,
				       .kv_lora = 3,
				       .qk_rope = 1,
				       .index_dim = 2,
				       .index_layers = 1,
				       .vocabulary = 50,
				       .promised = 10,
				       .present = 9,
				       .torn_bytes = 5};

static void write_saved(void)
{
	char path[256];
	int fd = open(path_of("coli", path), O_WRONLY | O_CREAT | O_TRUNC, 0600);

	cr_assert_eq(coli_file_write(&saved, fd), 0);
	close(fd);
	folder_write(&folder, "config.json", "{}", 2);
	folder_write_shard(&folder, "a.safetensors", "{}", 0);
}

#define CONVERT "kv convert @/coli @/out --model @ --position rope --representation f32"

/* What is printed, allocated; NULL with message set. */
static char *convert(const char *line)
{
	struct run run = {.verb = &verb_kv, .stop_fd = -1};
	json_t *answer = NULL;
	char *output = NULL;

	free(request_of(line));
	cr_assert(verb_kv.is_local(options.word_count, options.word), "%s", message);
	run.as_json = options.as_json;
	if (verb_kv.answer_here(options.word_count, options.word, &answer, message) == 0)
		cr_assert_eq(run_render(&run, answer, &output, message), 0, "%s", message);
	return output;
}

/* The leaf of the prefix that a conversion made, under the identity that the reader expects. */
static void expect_prefix(const struct kv_identity *stated, uint64_t tokens)
{
	unsigned char root[KV_KEY_BYTES];
	struct kv_prefix_reader reader;
	char path[256];
	int fd = open(path_of("out", path), O_RDONLY);

	cr_assert_geq(fd, 0);
	cr_assert_eq(kv_prefix_open(&reader, fd, message), 0, "%s", message);
	cr_assert_eq(kv_key_root(stated, root), 0);
	cr_expect_eq(memcmp(root, reader.summary.root, sizeof root), 0, "another identity than was stated");
	cr_expect_eq(reader.summary.tokens, tokens);
	close(fd);
	cr_assert_eq(unlink(path), 0);
}

Test(ctl_kv, convert_writes_a_prefix_under_the_identity_that_was_stated)
{
	struct cnre_fingerprint fingerprint;
	unsigned char payload[CNRE_DIGEST_BYTES];
	struct kv_identity stated = {.position = "rope",
				     .representation = "f32",
				     .block_tokens = 64,
				     .model = fingerprint.identity,
				     .payload = payload};
	char *output;

	write_saved();
	cr_assert_eq(cnre_fingerprint_directory(folder.path, &fingerprint, NULL, 0), 0);
	cr_assert_eq(cnre_payload_digest(folder.path, payload), 0);
	output = convert(CONVERT);
	cr_assert_not_null(output, "%s", message);
	expect_contains(output, "converted 1 blocks, 9 tokens, 360 B\nkey ");
	expect_contains(output, "1 records dropped");
	free(output);
	expect_prefix(&stated, 9);
	output = convert(CONVERT " --tokenizer tok --chat-template tmpl --salt s --version 3 --block-tokens 4 --json");
	cr_assert_not_null(output, "%s", message);
	expect_contains(output, "\"blocks\":3,");
	expect_contains(output, "\"dropped\":1,");
	free(output);
	stated.tokenizer = "tok";
	stated.chat_template = "tmpl";
	stated.salt = "s";
	stated.version = 3;
	stated.block_tokens = 4;
	expect_prefix(&stated, 9);
}

Test(ctl_kv, convert_writes_over_nothing_and_leaves_nothing_when_it_fails)
{
	char path[256];

	write_saved();
	folder_write(&folder, "out", "mine", 4);
	cr_expect_null(convert(CONVERT));
	expect_contains(message, "never written over");
	cr_assert_eq(unlink(path_of("out", path)), 0);
	cr_expect_null(convert("kv convert @/coli @/out --model @/none --position p --representation r"));
	expect_contains(message, "/none");
	cr_expect_eq(access(path, F_OK), -1);
	folder_write(&folder, "coli", (const char[40]){"COLIKV2"}, 40);
	cr_expect_null(convert(CONVERT));
	expect_contains(message, "fp8");
	cr_expect_eq(access(path, F_OK), -1);
	cr_expect_null(convert("kv convert @/nothing @/out --model @ --position p --representation r"));
	cr_expect_null(convert("kv convert @ @/out --model @ --position p --representation r"));
}
