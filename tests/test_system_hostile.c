/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that may connect and mean harm. None may change a byte another client reads, stop the manager, or keep an
 * honest client from its experts.
 */
#include "base/clock.h"
#include "cnre/cnre.h"
#include "manager/feed.h"
#include "shm/ledger.h"
#include "shm/wire.h"
#include "tests/support/attacker.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

TestSuite(system_hostile, .timeout = 200);

enum { NOBODY = 65534 };

static const char *const open_socket[] = {"--socket-mode", "0666", NULL};

static int become_nobody(void)
{
	return setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
			       setresuid(NOBODY, NOBODY, NOBODY) == 0
		       ? 0
		       : -errno;
}

/* An honest client reads every expert `rounds` times and compares with what it saw first. 0, or what went wrong. */
static int read_everything(const struct world *world, int rounds)
{
	struct cnre_options options = {
		.size = sizeof options, .socket = world->socket, .timeout_ns = 20000000000, .name = "honest"};
	struct cnre_model_info info = {.size = sizeof info};
	static uint64_t sums[4096];
	struct cnre *client;
	int r = cnre_attach(&client, world->model, &options);

	if (r < 0)
		return r;
	r = cnre_model(client, &info);
	for (int round = 0; round < rounds && r == 0; round++) {
		for (uint32_t i = 0; i < info.layer_count * info.expert_count && r == 0; i++) {
			struct cnre_expert expert;
			uint64_t sum = 0;

			r = cnre_acquire(client, i / info.expert_count, i % info.expert_count, 30000000000, &expert);
			if (r < 0)
				break;
			for (uint64_t k = 0; k < expert.part[CNRE_DOWN].bytes; k += 64)
				sum = sum * 31 + ((const unsigned char *)expert.part[CNRE_DOWN].data)[k];
			if (round == 0)
				sums[i] = sum;
			else if (sums[i] != sum)
				r = -EILSEQ;
			if (r == 0)
				r = cnre_release(client, &expert);
		}
	}
	cnre_detach(client);
	return r;
}

static int child_status(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) != child)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Test(system_hostile, another_user_finds_no_way_to_write_what_is_not_its_own)
{
	struct world world;
	pid_t child;

	if (geteuid() != 0)
		cr_skip("needs root to become another user");
	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, open_socket), 0);
	cr_assert_eq(read_everything(&world, 1), 0);
	child = fork();
	if (child == 0) {
		struct attacker attacker;
		int r = become_nobody();

		if (r == 0)
			r = attacker_attach(&attacker, world.socket, world.model);
		_exit(r < 0 ? 100 : attacker_find_writable(&attacker));
	}
	cr_assert_eq(child_status(child), 0, "the exit status counts ways that worked; 100: it could not attach");
	cr_assert_eq(kill(world.manager, 0), 0);
	cr_assert_eq(read_everything(&world, 2), 0);
	world_close(&world);
}

/* Seconds of garbage: a few here, sixty with CNRE_HOSTILE_SECONDS=60. */
static int seconds_of_garbage(void)
{
	const char *text = getenv("CNRE_HOSTILE_SECONDS");

	return text != NULL ? atoi(text) : 3;
}

/* A process that attaches and writes garbage; it ends with 100 where it cannot attach. */
static pid_t start_garbage(const struct world *world, int seconds, unsigned seed, int ledger_too)
{
	struct attacker attacker;
	pid_t child = fork();

	if (child != 0)
		return child;
	if (attacker_attach(&attacker, world->socket, world->model) < 0)
		_exit(100);
	attacker_write_garbage(&attacker, seconds, seed, ledger_too);
	_exit(0);
}

Test(system_hostile, garbage_in_a_whole_channel_and_ledger_hurts_nobody_else)
{
	static const char *const options[] = {"--socket-mode", "0666", "--ram", "1M",
					      NULL}; /* less than the model: evictions all the time */
	struct world world;
	pid_t child[4];

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, options), 0);
	/* Two write everywhere, ledger included; two leave the ledger alone. */
	for (int i = 0; i < 4; i++)
		child[i] = start_garbage(&world, seconds_of_garbage(), (unsigned)i, i < 2);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(child_status(child[i]), 0);
	cr_assert_eq(kill(world.manager, 0), 0, "the manager is gone");
	cr_assert_eq(read_everything(&world, 3), 0);
	cr_assert_gt(world_stat(&world, "requests_invalid"), 0);
	world_close(&world);
}

Test(system_hostile, honest_clients_go_on_while_garbage_is_written)
{
	static const char *const options[] = {"--socket-mode", "0666", "--ram", "1M", NULL};
	struct world world;
	pid_t bad[2];

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, options), 0);
	for (int i = 0; i < 2; i++)
		bad[i] = start_garbage(&world, 600, (unsigned)i + 10, 0);
	cr_assert_eq(read_everything(&world, 5), 0);
	for (int i = 0; i < 2; i++) {
		(void)kill(bad[i], SIGKILL);
		cr_assert_eq(child_status(bad[i]), 128 + SIGKILL,
			     "the attacker was to be killed, not to end by itself");
	}
	world_close(&world);
}

/* Of layer 0, as `cnrectl layers` has it. */
static uint64_t visits_counted(const struct world *world)
{
	const char *arguments[] = {"--socket", world->socket, "layers", "--json", NULL};
	char output[16384] = "";
	json_t *answer, *layer;
	uint64_t visits;

	cr_assert_eq(world_run("cnrectl", arguments, output, sizeof output), 0);
	answer = json_loads(output, 0, NULL);
	layer = json_array_get(json_object_get(json_array_get(json_object_get(answer, "models"), 0), "layers"), 0);
	visits = (uint64_t)json_integer_value(json_object_get(layer, "visits"));
	json_decref(answer);
	return visits;
}

static void spin(const struct world *world, int milliseconds, int accesses)
{
	struct attacker attacker;
	pid_t child = fork();

	if (child == 0) {
		if (attacker_attach(&attacker, world->socket, world->model) < 0)
			_exit(100);
		attacker_spin_visits(&attacker, milliseconds, accesses);
		_exit(0);
	}
	cr_assert_eq(child_status(child), 0);
}

/* Visits are the clock of policies: who could turn it at will would make everybody else's experts look forgotten. */
Test(system_hostile, visits_of_nothing_turn_no_clock_and_others_only_so_fast)
{
	struct world world;
	int64_t begin_ns;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, open_socket), 0);
	spin(&world, 200, 0);
	cr_assert_eq(visits_counted(&world), 0);
	begin_ns = cnre_clock_now_ns();
	spin(&world, 500, 1);
	cr_assert_gt(visits_counted(&world), 1);
	cr_assert_leq(visits_counted(&world),
		      (uint64_t)(FEED_VISITS_BURST + 1 + (cnre_clock_now_ns() - begin_ns) / FEED_VISIT_NS));
	world_close(&world);
}

Test(system_hostile, malformed_messages_end_their_connection_only)
{
	struct world world;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	for (unsigned seed = 0; seed < 500; seed++)
		attacker_send_random_message(world.socket, seed);
	cr_assert_eq(kill(world.manager, 0), 0, "the manager is gone");
	cr_assert_eq(read_everything(&world, 1), 0);
	world_close(&world);
}

static int reply_status(int socket)
{
	_Alignas(8) char buffer[CNRE_WIRE_MESSAGE_MAX];
	int fds[CNRE_WIRE_FDS_MAX];
	size_t count = 0;
	int r = cnre_wire_receive(socket, buffer, fds, &count);

	for (size_t i = 0; i < count; i++)
		(void)close(fds[i]);
	return r > 0 ? ((const struct cnre_wire_reply *)buffer)->status : -EPIPE;
}

/* The second question may be read only when the first is answered; else it is refused. */
static void ask_twice(const char *socket, const char *question)
{
	int twice = attacker_ask(socket, question, 2);
	int first = reply_status(twice), second = reply_status(twice);

	(void)close(twice);
	cr_assert(first == 0 || second == 0, "%d, %d", first, second);
	cr_assert(first + second == 0 || first + second == -EAGAIN, "%d, %d", first, second);
}

/* Goal: an answer that takes several turns holds nobody up, and needs nobody to wait for it. Method: enough sessions. */
Test(system_hostile, who_asks_for_all_clients_and_leaves_or_asks_again_costs_the_others_nothing)
{
	static const char question[] = "{\"verb\":\"clients\"}";
	static struct attacker attacker[40];
	struct world world;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, (const char *const[]){"--ram", "1G", NULL}), 0);
	for (size_t i = 0; i < sizeof attacker / sizeof attacker[0]; i++)
		cr_assert_eq(attacker_attach(&attacker[i], world.socket, world.model), 0, "attacker %zu", i);
	for (int i = 0; i < 50; i++)
		(void)close(attacker_ask(world.socket, question, 1));
	ask_twice(world.socket, question);
	cr_assert_eq(world_status(&world, "clients"), 40);
	cr_assert_eq(world_stat(&world, "leased_objects"), 0);
	cr_assert_eq(kill(world.manager, 0), 0, "the manager is gone");
	world_close(&world);
}

Test(system_hostile, another_layout_version_is_refused_with_eproto)
{
	struct world world;

	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, NULL), 0);
	cr_assert_eq(attacker_hello_of_version(world.socket, world.model, CNRE_LAYOUT_VERSION + 1), -EPROTO);
	cr_assert_eq(attacker_hello_of_version(world.socket, world.model, CNRE_LAYOUT_VERSION), -ESTALE,
		     "our path, another identity");
	world_close(&world);
}

Test(system_hostile, settings_can_be_changed_by_root_and_the_owner_only)
{
	struct world world;
	pid_t child;

	if (geteuid() != 0)
		cr_skip("needs root to become another user");
	world_open(&world);
	world_generate(&world, NULL);
	cr_assert_gt(world_start(&world, open_socket), 0);
	child = fork();
	if (child == 0) {
		const char *const set[] = {"--socket", world.socket, "set", "ram", "1G", NULL};
		const char *const stats[] = {"--socket", world.socket, "stats", NULL};

		if (become_nobody() < 0)
			_exit(100);
		_exit(world_run("cnrectl", set, NULL, 0) * 10 + world_run("cnrectl", stats, NULL, 0));
	}
	cr_assert_eq(child_status(child), 10, "set must fail (1), stats must work (0)");
	world_close(&world);
}

/* ---- questions ---- */

enum { LARGE_LAYERS = 16, LARGE_EXPERTS = 1024, QUESTIONS = 40 };

static int ctl(const struct world *world, const char *const *words, char *output, size_t output_bytes)
{
	const char *arguments[12] = {"--socket", world->socket};

	for (size_t i = 0; words[i] != NULL && i < 9; i++)
		arguments[i + 2] = words[i];
	return world_run("cnrectl", arguments, output, output_bytes);
}

/* As if each expert of a large model had been used. */
static void use_everything(const struct world *world)
{
	char path[192];
	FILE *list;

	(void)snprintf(path, sizeof path, "%s/list", world->directory);
	list = fopen(path, "we");
	cr_assert_not_null(list);
	for (int i = 0; i < LARGE_LAYERS * LARGE_EXPERTS; i++)
		(void)fprintf(list, "%d %d\n", i / LARGE_EXPERTS, i % LARGE_EXPERTS);
	cr_assert_eq(fclose(list), 0);
	cr_assert_eq(ctl(world, (const char *const[]){"usage", "import", path, NULL}, NULL, 0), 0);
}

static int count_answers(const int *asker)
{
	int count = 0;

	for (int i = 0; i < QUESTIONS; i++)
		count += poll(&(struct pollfd){.fd = asker[i], .events = POLLIN}, 1, 0) == 1;
	return count;
}

/*
 * Goal: any user may ask, and some answers take the core thread milliseconds, but who misses does not wait for all of them.
 * Method: many ask at once; a miss that begins then is over while most of them wait still.
 */
Test(system_hostile, many_costly_questions_at_once_hold_up_no_miss)
{
	static const char question[] = "{\"verb\":\"usage\",\"action\":\"export\"}";
	struct cnre_expert expert;
	struct cnre *client;
	struct world world;
	int asker[QUESTIONS];

	world_open(&world);
	world_generate(&world, (const char *const[]){"--layers", "16", "--experts", "1024", "--hidden", "16",
						     "--intermediate", "16", NULL});
	cr_assert_gt(world_start(&world, (const char *const[]){"--ram", "32M", NULL}), 0);
	use_everything(&world);
	client = world_attach(&world, 1);
	for (int i = 0; i < QUESTIONS; i++)
		asker[i] = attacker_ask(world.socket, "{\"verb\":\"status\"}", 1);
	for (int i = 0; i < QUESTIONS; i++)
		cr_expect_eq(reply_status(asker[i]), 0); /* the manager knows all of them now */
	for (int i = 0; i < QUESTIONS; i++)
		cr_expect_eq(attacker_ask_on(asker[i], question), 0);
	cr_expect_eq(cnre_acquire(client, 0, 0, -1, &expert), 0);
	cr_expect_lt(count_answers(asker), QUESTIONS / 2, "%d", count_answers(asker));
	cr_expect_eq(cnre_release(client, &expert), 0);
	for (int i = 0; i < QUESTIONS; i++) {
		cr_expect_eq(reply_status(asker[i]), 0, "each is answered in its turn");
		(void)close(asker[i]);
	}
	cnre_detach(client);
	world_close(&world);
}

/* The descriptor of the answer to one question, which is kept; or a negative status. */
static int keep_answer(int socket)
{
	_Alignas(8) char buffer[CNRE_WIRE_MESSAGE_MAX];
	int fds[CNRE_WIRE_FDS_MAX];
	size_t count = 0;
	int r = cnre_wire_receive(socket, buffer, fds, &count);

	if (r <= 0 || ((const struct cnre_wire_reply *)buffer)->status < 0 || count != 1)
		return -EPIPE;
	return fds[0];
}

/*
 * Goal: memory of answers is the manager's own, whoever keeps the descriptor, and is bounded. Method: take many large ones,
 * read each at once, and see how much they still hold at the end.
 */
Test(system_hostile, answers_that_an_asker_keeps_do_not_keep_their_memory)
{
	static const char question[] = "{\"verb\":\"usage\",\"action\":\"export\"}";
	enum { ANSWERS = 100 };
	int kept[ANSWERS], whole = 0;
	struct world world;
	struct stat status;

	world_open(&world);
	world_generate(&world, (const char *const[]){"--layers", "16", "--experts", "1024", "--hidden", "16",
						     "--intermediate", "16", NULL});
	cr_assert_gt(world_start(&world, (const char *const[]){"--ram", "32M", NULL}), 0);
	use_everything(&world);
	for (int i = 0; i < ANSWERS; i++) {
		int asker = attacker_ask(world.socket, question, 1);

		kept[i] = keep_answer(asker);
		cr_assert_geq(kept[i], 0);
		cr_expect(fstat(kept[i], &status) == 0 && status.st_size > LARGE_LAYERS * LARGE_EXPERTS, "whole at first");
		(void)close(asker);
	}
	for (int i = 0; i < ANSWERS; i++) {
		cr_assert_eq(fstat(kept[i], &status), 0);
		whole += status.st_blocks > 0;
		(void)close(kept[i]);
	}
	cr_expect_leq(whole, ANSWERS / 2, "%d", whole);
	world_close(&world);
}

static int nobody_is_told(const struct world *world, const char *text)
{
	static const char *const questions[][2] = {{"warm", "--json"}, {"usage", "--json"}, {"status", "--json"}};
	char output[32768];

	if (become_nobody() < 0)
		return 100;
	for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
		const char *const words[] = {questions[i][0], questions[i][1], NULL};

		output[0] = '\0';
		if (ctl(world, words, output, sizeof output) != 0)
			return 101;
		if (strstr(output, text) != NULL)
			return (int)i + 1;
	}
	return 0;
}

/* A file that root names may be a link by now to one that only root can read, and a refusal quotes its first line. */
Test(system_hostile, what_a_refused_file_says_is_told_to_root_and_the_owner_only)
{
	struct world world;
	char path[192], output[32768] = "";
	FILE *file;
	pid_t child;

	if (geteuid() != 0)
		cr_skip("needs root to become another user");
	world_open(&world);
	world_generate(&world, NULL);
	(void)snprintf(path, sizeof path, "%s/list", world.directory);
	file = fopen(path, "we");
	cr_assert_not_null(file);
	(void)fputs("root:$6$hash of the password\n", file);
	cr_assert(fchmod(fileno(file), 0600) == 0 && fclose(file) == 0);
	cr_assert_gt(world_start(&world, open_socket), 0);
	cr_expect_eq(ctl(&world, (const char *const[]){"warm", path, NULL}, NULL, 0), 1);
	cr_expect_eq(ctl(&world, (const char *const[]){"usage", "import", path, NULL}, NULL, 0), 1);
	cr_expect_eq(ctl(&world, (const char *const[]){"warm", "--json", NULL}, output, sizeof output), 0);
	cr_expect_not_null(strstr(output, "$6$hash"), "%s", output);
	child = fork();
	if (child == 0)
		_exit(nobody_is_told(&world, "$6$hash"));
	cr_expect_eq(child_status(child), 0, "1 warm, 2 usage, 3 status; 100, 101: could not ask");
	world_close(&world);
}
