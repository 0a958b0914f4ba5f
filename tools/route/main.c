/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnre-route, a front end for engines that share prefixes: each request goes to the process that holds the longest prefix
 * of its tokens in its own rows or used it last, before anyone copies; where none does, to the least busy one. A
 * conversation stays where it began. It is a user of libcnre, and an example of cnre_kv_route.
 */
#include "tools/route/engines.h"
#include "tools/route/homes.h"
#include "tools/route/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct route {
	struct route_options options;
	struct engines *engines;
	struct store store; /* empty: nobody can be asked */
	struct homes homes;
	char line[ROUTE_LINE_BYTES_MAX + 2];
	int32_t tokens[ROUTE_TOKENS_MAX];
	char message[ROUTE_MESSAGE_BYTES];
};

/* Of all engines, which must be alike; the first one's line is kept. */
static int ask_identities(struct route *route, char first[ENGINES_IDENTITY_BYTES])
{
	char other[ENGINES_IDENTITY_BYTES];
	int error = 0;

	for (uint32_t i = 0; i < route->options.place_count && error == 0; i++) {
		char *line = i == 0 ? first : other;

		error = engines_identity(route->engines, i, line, route->message);
		if (error == 0)
			error = store_check_identity(first, line, route->options.place[i].name, route->message);
	}
	return error;
}

static int open_route(struct route *route)
{
	char identity[ENGINES_IDENTITY_BYTES];
	int error = engines_open(&route->engines, &route->options, stdout, route->message);

	if (error == 0)
		error = ask_identities(route, identity);
	if (error < 0)
		return error;
	if (store_open(&route->store, &route->options, identity, route->message) < 0)
		fprintf(stderr, "cnre-route: %s\n", route->message);
	error = engines_start(route->engines);
	if (error < 0)
		(void)snprintf(route->message, sizeof route->message, "cannot start a thread: %s", strerror(-error));
	return error;
}

/* Where a conversation begins: the engine's number, or -ENOTCONN. */
static int choose(struct route *route, const struct route_request *request, const char **ret_why)
{
	char name[ROUTE_NAME_BYTES];
	int engine;

	*ret_why = "prefix";
	if (request->verb == ROUTE_GENERATE &&
	    store_ask(&route->store, route->tokens, request->token_count, name) == 1 &&
	    (engine = engines_find(route->engines, name)) >= 0)
		return engine;
	*ret_why = "load";
	return engines_least_busy(route->engines);
}

static void send_on(struct route *route, const struct route_request *request)
{
	const char *why = "conversation";
	int engine = request->verb == ROUTE_CONTINUE ? homes_find(&route->homes, request->id)
						     : choose(route, request, &why);

	if (engine < 0 && request->verb == ROUTE_CONTINUE) {
		engines_refuse(route->engines, request->id, "no such conversation; begin it with generate");
	} else if (engine < 0 || engines_send(route->engines, (uint32_t)engine, route->line, request->id, why) < 0) {
		engines_refuse(route->engines, request->id,
			       request->verb == ROUTE_CONTINUE ? "its engine is gone; begin again with generate"
							       : "no engine is left; start one and run again");
	} else if (request->verb == ROUTE_GENERATE) {
		homes_set(&route->homes, request->id, (uint32_t)engine);
	}
}

/* 1 and a line with its newline, 0 at the end. Longer ones are refused. */
static int next_line(struct route *route)
{
	while (fgets(route->line, sizeof route->line, stdin)) {
		size_t length = strlen(route->line);
		int character = 0;

		if (length > 0 && route->line[length - 1] == '\n')
			return 1;
		if (length < sizeof route->line - 1) { /* the last line, or one with a zero byte */
			memcpy(route->line + length, "\n", 2);
			return 1;
		}
		while (character != '\n' && character != EOF)
			character = getchar();
		engines_refuse(route->engines, "", "the line is longer than 1 MiB; send fewer tokens");
	}
	return 0;
}

static int run(struct route *route)
{
	struct route_request request;
	int error = open_route(route);

	while (error == 0 && next_line(route)) {
		route_request_read(&request, route->line, route->tokens);
		if (request.verb == ROUTE_QUIT)
			break;
		send_on(route, &request);
	}
	engines_close(route->engines);
	store_close(&route->store);
	return error;
}

int main(int argc, char **argv)
{
	static struct route route;

	if (route_options_parse(&route.options, argc, argv, route.message) < 0) {
		fprintf(stderr, "cnre-route: %s\n", route.message);
		return EXIT_USAGE;
	}
	if (route.options.help || route.options.version) {
		fputs(route.options.help ? route_options_help() : "cnre-route " CNRE_VERSION "\n", stdout);
		return fflush(stdout) == 0 ? EXIT_DONE : EXIT_FAILED;
	}
	if (run(&route) < 0) {
		fprintf(stderr, "cnre-route: %s\n", route.message);
		return EXIT_FAILED;
	}
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "cnre-route: cannot write to standard output\n");
		return EXIT_FAILED;
	}
	return EXIT_DONE;
}
