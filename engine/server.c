/* SPDX-License-Identifier: Apache-2.0 */
/* See server.h. */
#include "engine/server.h"

#include "engine/advice.h"
#include "engine/answer.h"
#include "engine/stop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int server_init(struct server *server, struct forward *forward, const struct kv_store *store,
		const struct server_bounds *bounds)
{
	*server = (struct server){
		.forward = forward,
		.conversations = {.store = store, .rows_max = bounds->conversations, .positions = bounds->positions},
		.tokens = calloc(bounds->positions, sizeof *server->tokens),
	};
	return server->tokens ? 0 : -ENOMEM;
}

void server_done(struct server *server)
{
	conversations_done(&server->conversations);
	free(server->tokens);
	server->tokens = NULL;
}

/* The conversation that the request continues or begins. */
static int find_conversation(struct server *server, const struct request *request,
			     struct conversation **ret_conversation, char *message)
{
	struct conversations *table = &server->conversations;
	struct conversation *found = conversations_find(table, request->id);
	const uint32_t before = request->verb == REQUEST_APPEND && found ? found->count : 0;

	if (request->verb == REQUEST_APPEND && !found)
		return engine_fail(message, -ENOENT, "no such conversation; begin it with generate");
	if ((uint64_t)before + request->count + request->steps > table->positions)
		return engine_fail(
			message, -E2BIG,
			"a conversation has %u positions, and %u tokens and %u steps are too many for the %u "
			"left; send fewer, or raise --positions",
			table->positions, request->count, request->steps, table->positions - before);
	if (request->verb == REQUEST_GENERATE && conversations_begin(table, request->id, &found) < 0)
		return engine_fail(message, -ENOMEM, "out of memory for a conversation; end some");
	*ret_conversation = found;
	return 0;
}

static char *run_turn(struct server *server, const struct request *request)
{
	const struct turn turn = {.tokens = request->tokens, .count = request->count, .steps = request->steps};
	struct conversation *conversation = NULL;
	struct turn_result result;
	char message[ENGINE_MESSAGE_BYTES];
	int error = find_conversation(server, request, &conversation, message);

	if (error < 0)
		return answer_error(request->id, message);
	conversations_use(&server->conversations, conversation);
	error = conversation_run(conversation, server->forward, &turn, &result);
	if (error == 0)
		return answer_turn(request->id, &result, request->steps);
	if (request->verb == REQUEST_GENERATE)
		(void)conversations_end(&server->conversations, request->id); /* it was begun just now */
	if (stop_is_asked())
		return answer_error(request->id, "interrupted; the engine ends");
	(void)engine_fail(message, error, "%s: %s", strerror(-error), advice_for(error));
	return answer_error(request->id, message);
}

static char *end_conversation(struct server *server, const char *id)
{
	if (conversations_end(&server->conversations, id) < 0)
		return answer_error(id, "no such conversation; begin it with generate");
	return answer_ended(id);
}

static char *tell_identity(const struct server *server)
{
	struct kv_identity identity;

	kv_identity_make(&identity, server->forward->config);
	return answer_identity(server->name, &identity);
}

char *server_answer(struct server *server, char *line, bool *ret_quit)
{
	const struct request_bounds bounds = {.vocab = server->forward->config->vocab,
					      .positions = server->conversations.positions,
					      .tokens = server->tokens};
	struct request request;
	char message[ENGINE_MESSAGE_BYTES];

	if (request_parse(&request, line, &bounds, message) < 0)
		return answer_error(NULL, message);
	switch (request.verb) {
	case REQUEST_QUIT:
		*ret_quit = true;
		return answer_quit();
	case REQUEST_END:
		return end_conversation(server, request.id);
	case REQUEST_IDENTITY:
		return tell_identity(server);
	default:
		return run_turn(server, &request);
	}
}
