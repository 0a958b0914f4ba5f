/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl warm and cnrectl usage: their words, what is asked, what is kept, and what a person reads. */
#include "tools/ctl/run.h"

#include "tests/support/fake_manager.h"
#include "tests/support/folder.h"
#include "tools/ctl/options.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

TestSuite(ctl_warm, .init = make, .fini = clean, .timeout = 30);

#define WORDS_MAX 16

static char message[CTL_MESSAGE_BYTES];
static struct options options;

static int parse(const char *line)
{
	static char copy[1024];
	char *argv[WORDS_MAX] = {"cnrectl"};
	int argc = 1;

	(void)snprintf(copy, sizeof copy, "%s", line);
	for (char *word = strtok(copy, " "); word != NULL && argc < WORDS_MAX - 1; word = strtok(NULL, " "))
		argv[argc++] = word;
	message[0] = '\0';
	return options_parse(argc, argv, &options, message);
}

static void expect_request(const char *line, const char *expected)
{
	json_t *request = NULL;
	char *text;

	cr_assert_eq(parse(line), 0, "%s: %s", line, message);
	cr_assert_eq(verb_find(options.word[0])->request(options.word_count, options.word, &request, message), 0, "%s: %s", line,
		     message);
	text = json_dumps(request, JSON_COMPACT | JSON_SORT_KEYS);
	cr_expect_str_eq(text, expected);
	free(text);
	json_decref(request);
}

static void expect_refused(const char *line, const char *reason)
{
	json_t *request = NULL;
	int r = parse(line);

	if (r == 0)
		r = verb_find(options.word[0])->request(options.word_count, options.word, &request, message);
	cr_expect_eq(r, -EINVAL, "%s", line);
	cr_expect_not_null(strstr(message, reason), "%s: %s", line, message);
}

/* ---- words ---- */

Test(ctl_warm, words_become_a_request)
{
	expect_request("warm", "{\"action\":\"status\",\"verb\":\"warm\"}");
	expect_request("warm stop", "{\"action\":\"stop\",\"verb\":\"warm\"}");
	expect_request("warm list", "{\"action\":\"start\",\"file\":\"list\",\"verb\":\"warm\"}");
	expect_request("warm list --bytes 2G --seconds=60 --model glm",
		       "{\"action\":\"start\",\"bytes_max\":2147483648,\"file\":\"list\",\"model\":\"glm\",\"seconds_max\":60,"
		       "\"verb\":\"warm\"}");
	expect_request("usage", "{\"action\":\"status\",\"verb\":\"usage\"}");
	expect_request("usage export out", "{\"action\":\"export\",\"verb\":\"usage\"}");
	expect_request("usage import in --model glm",
		       "{\"action\":\"import\",\"file\":\"in\",\"model\":\"glm\",\"verb\":\"usage\"}");
}

Test(ctl_warm, words_that_mean_nothing_are_refused)
{
	expect_refused("warm list another", "takes nothing, or is one of");
	expect_refused("warm stop now", "takes nothing, or is one of");
	expect_refused("warm list --bytes 0", "--bytes 0: not a size");
	expect_refused("warm list --bytes much", "--bytes much: not a size");
	expect_refused("warm list --seconds 0", "--seconds 0: not a number from 1");
	expect_refused("warm list --seconds 1s", "--seconds 1s: not a number from 1");
	expect_refused("warm list --seconds 99999999999999999999", "not a number from 1");
	expect_refused("warm list --bytes 1G --bytes 2G", "takes nothing, or is one of");
	expect_refused("warm list --bytes", "--bytes: needs a value");
	expect_refused("warm --bytes 1G", "no such option");
	expect_refused("usage export", "takes nothing, or is one of");
	expect_refused("usage import a b", "takes nothing, or is one of");
	expect_refused("usage show", "takes nothing, or is one of");
	expect_refused("usage export out --bytes 1G", "no such option");
}

Test(ctl_warm, file_that_is_not_there_or_no_regular_one_is_said_before_anybody_is_asked)
{
	cr_assert_eq(parse("warm /nowhere/list"), 0);
	cr_expect_eq(verb_warm.file(options.word_count, options.word, message), -ENOENT);
	cr_expect_str_eq(message, "/nowhere/list: No such file or directory");
	cr_assert_eq(parse("usage import /dev/null"), 0);
	cr_expect_eq(verb_usage.file(options.word_count, options.word, message), -EINVAL);
	cr_expect_str_eq(message, "/dev/null: not a regular file");
	cr_assert_eq(parse("usage export anywhere"), 0);
	cr_expect_eq(verb_usage.file(options.word_count, options.word, message), VERB_NO_FILE);
}

/* ---- answers ---- */

static char *output_of(const char *line, const char *text, int as_json, int *ret_status)
{
	struct fake_manager manager = {.text = text};
	struct run run = {.request = "{}", .as_json = as_json, .stop_fd = -1, .is_order = 1};
	char *output = NULL;

	cr_assert_eq(parse(line), 0, "%s", message);
	run.verb = verb_find(options.word[0]);
	run.argc = options.word_count;
	run.argv = options.word;
	cr_assert_eq(fake_manager_start(&manager), 0);
	run.places.given = manager.path;
	*ret_status = run_once(&run, &output, message);
	fake_manager_stop(&manager);
	return output;
}

#define EXPORTED "{\"model\":\"tiny\",\"engine\":\"olmoe\",\"experts\":2,\"uses\":1234,\"text\":\"-1 2 4\\n0 1 1234\\n\"}"

static void expect_file(const char *path, const char *expected)
{
	char text[128] = "";
	FILE *file = fopen(path, "re");

	cr_assert_not_null(file, "%s", path);
	(void)fread(text, 1, sizeof text - 1, file);
	(void)fclose(file);
	cr_expect_str_eq(text, expected);
}

Test(ctl_warm, exported_history_is_a_file_for_everybody_and_replaces_the_one_before)
{
	char path[128], line[160];
	struct stat status;
	char *output;
	int r;

	(void)umask(022);
	(void)folder_path(&folder, ".coli_usage", path, sizeof path);
	folder_write(&folder, ".coli_usage", "old", 3);
	(void)snprintf(line, sizeof line, "usage export %s", path);
	output = output_of(line, EXPORTED, 0, &r);
	cr_assert_eq(r, 0, "%s", message);
	cr_expect_str_eq(output, "exported 1,234 uses of 2 experts of tiny, for the engine olmoe\n");
	expect_file(path, "-1 2 4\n0 1 1234\n");
	cr_assert_eq(stat(path, &status), 0);
	cr_expect_eq(status.st_mode & 0777, 0644);
	free(output);
	output = output_of(line, EXPORTED, 1, &r);
	cr_assert_eq(r, 0, "%s", message);
	cr_expect_null(strstr(output, "text"), "it is in the file");
	free(output);
}

/* Puts a link to `victim` where the history is written, again and again. */
static void swap_links(const char *victim, const char *path, const char *beside)
{
	for (;;)
		if (symlink(victim, beside) == 0 || errno == EEXIST)
			(void)rename(beside, path);
}

/* The folder is the engine's, and its user may do there what he likes, while root writes a history for him. */
Test(ctl_warm, export_changes_no_file_that_a_link_in_the_folder_names)
{
	char path[128], victim[128], beside[128], line[160];
	struct stat status;
	pid_t swapper;
	int r;

	(void)umask(022);
	(void)folder_path(&folder, ".coli_usage", path, sizeof path);
	(void)folder_path(&folder, "beside", beside, sizeof beside);
	(void)folder_path(&folder, "secret", victim, sizeof victim);
	folder_write(&folder, "secret", "secret", 6);
	cr_assert_eq(chmod(victim, 0600), 0);
	(void)snprintf(line, sizeof line, "usage export %s", path);
	swapper = fork();
	if (swapper == 0)
		swap_links(victim, path, beside);
	for (int i = 0; i < 20; i++) {
		free(output_of(line, EXPORTED, 1, &r));
		cr_expect_eq(r, 0, "%s", message);
	}
	(void)kill(swapper, SIGKILL);
	(void)waitpid(swapper, NULL, 0);
	cr_assert_eq(stat(victim, &status), 0);
	cr_expect_eq(status.st_mode & 0777, 0600, "0%o", status.st_mode & 0777);
	expect_file(victim, "secret");
}

Test(ctl_warm, export_that_cannot_be_written_fails_and_says_so)
{
	int r;

	cr_assert_null(output_of("usage export /nowhere/file", EXPORTED, 0, &r));
	cr_expect_eq(r, -ENOENT);
	cr_expect_str_eq(message, "/nowhere/file: No such file or directory: it is as it was");
	cr_assert_null(output_of("usage export /nowhere/file", "{\"model\":\"tiny\",\"engine\":\"olmoe\"}", 0, &r));
	cr_expect_eq(r, -EBADMSG);
}

Test(ctl_warm, import_that_was_refused_fails_with_the_manager_s_reason)
{
	int r;

	cr_assert_null(output_of("usage import x",
				 "{\"state\":\"failed\",\"file\":\"x\",\"kind\":\"\",\"writer\":\"\",\"error\":\"line 3: \\u001b[2J\","
				 "\"experts\":0,\"uses\":0,\"model\":\"tiny\",\"kept\":true}",
				 0, &r));
	cr_expect_eq(r, -EBADMSG);
	cr_expect_str_eq(message, "line 3: ?[2J: nothing was added");
}

Test(ctl_warm, import_says_whose_history_it_took_and_whether_it_is_kept)
{
	int r;
	char *output = output_of("usage import x",
				 "{\"state\":\"done\",\"file\":\"x\",\"kind\":\"history\",\"writer\":\"glm53\",\"error\":\"\","
				 "\"experts\":3,\"uses\":70,\"model\":\"tiny\",\"kept\":false}",
				 0, &r);

	cr_assert_eq(r, 0, "%s", message);
	cr_expect_str_eq(output,
			 "import     history x: 70 uses of 3 experts added to the history of tiny\n"
			 "           written by glm53, not by this model's engine: taken since it was named\n"
			 "           kept in memory only: start the manager with --usage DIR\n");
	free(output);
}

#define WARM(state, end, error, failed)                                                                                       \
	"{\"state\":\"" state "\",\"end\":\"" end "\",\"model\":\"tiny\",\"file\":\"x\",\"kind\":\"list\",\"writer\":\"\",\"error\":\"" \
	error "\",\"bytes_max\":0,\"seconds_max\":0.0,\"listed\":40,\"looked_at\":30,\"loaded\":20,\"present\":8,\"refused\":2," \
	      "\"failed\":" failed ",\"on_their_way\":0,\"bytes_loaded\":1073741824,\"seconds\":1.5}"

Test(ctl_warm, progress_and_end_are_shown_in_words)
{
	int r;
	char *output = output_of("warm", WARM("over", "full", "", "1"), 0, &r);

	cr_assert_eq(r, 0, "%s", message);
	cr_expect_str_eq(output, "warm       over, no room without evicting others: tiny of x\n"
				 "           30 of 40 experts looked at in 1.5 s: 20 loaded (1.0 GiB), 8 were there, 2 in full layers, 1 FAILED\n");
	free(output);
}

Test(ctl_warm, list_that_was_refused_fails_with_the_manager_s_reason)
{
	int r;

	cr_assert_null(output_of("warm x", WARM("over", "file", "line 2: expert 99 of 16", "0"), 0, &r));
	cr_expect_eq(r, -EBADMSG);
	cr_expect_str_eq(message, "line 2: expert 99 of 16: nothing is loaded for it");
}
