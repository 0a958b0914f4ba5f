/* SPDX-License-Identifier: Apache-2.0 */
/* See subject.h. */
#include "tools/inspect/subject.h"

#include "tools/ctl/answer.h"
#include "tools/ctl/connection.h"
#include "tools/inspect/socket_of.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int subject_ask(const struct subject *subject, const char *verb, json_t **ret_answer, char message[CTL_MESSAGE_BYTES])
{
	char path[SEARCH_PATH_BYTES], question[64], reason[CTL_MESSAGE_BYTES], *text = NULL;
	int connected = search_connect(&subject->places, path, message), r;
	size_t bytes = 0;

	if (connected < 0)
		return connected;
	(void)snprintf(question, sizeof question, "{\"verb\":\"%.32s\"}", verb);
	r = connection_ask(connected,
			   &(struct connection_question){
				   .text = question, .bytes = strlen(question), .stop_fd = -1, .timeout_ns = CONNECTION_TIMEOUT_NS},
			   &text, &bytes, reason);
	(void)close(connected);
	if (r < 0) {
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%s: %.800s", path, reason);
		return r;
	}
	r = answer_parse(text, bytes, ret_answer);
	free(text);
	if (r < 0)
		(void)snprintf(message, CTL_MESSAGE_BYTES, "the manager's answer is not the JSON that was agreed: install programs of one release");
	else
		answer_make_printable(*ret_answer);
	return r;
}

static uint64_t number(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));

	return value < 0 ? 0 : (uint64_t)value;
}

static int note_manager(struct subject *subject, const json_t *status)
{
	uint32_t process = (uint32_t)number(status, "pid");

	if (process == 0 || subject_is_manager(subject, process) || subject->manager_count == SUBJECT_MANAGERS_MAX)
		return 0;
	subject->manager[subject->manager_count++] = process;
	return 1;
}

static void note_models(struct subject *subject)
{
	const json_t *model;
	size_t i;

	json_array_foreach (json_object_get(subject->status, "models"), i, model) {
		const char *name = json_string_value(json_object_get(model, "name"));

		if (subject->model_count < SUBJECT_MODELS_MAX)
			(void)snprintf(subject->model[subject->model_count++], sizeof subject->model[0], "%s", name == NULL ? "" : name);
	}
}

static uint32_t model_by_name(const struct subject *subject, const char *name)
{
	for (uint32_t i = 0; name != NULL && i < subject->model_count; i++)
		if (strcmp(subject->model[i], name) == 0)
			return i;
	return SUBJECT_NO_MODEL;
}

/* 1: it is new. */
static int note_client(struct subject *subject, const json_t *from)
{
	uint32_t session = (uint32_t)number(from, "session"), process = (uint32_t)number(from, "pid"), at = 0;
	const char *name = json_string_value(json_object_get(from, "name"));
	struct subject_client *client;

	/* Latest first: a number of a session comes back, with another process. */
	for (at = subject->client_count; at > 0; at--)
		if (subject->client[at - 1].session == session && subject->client[at - 1].process == process)
			break;
	if (at == 0 && subject->client_count == SUBJECT_CLIENTS_MAX) {
		subject->clients_lost++;
		return 0;
	}
	client = at > 0 ? &subject->client[at - 1] : &subject->client[subject->client_count++];
	client->session = session;
	client->process = process;
	client->model = model_by_name(subject, json_string_value(json_object_get(from, "model")));
	client->leased = number(from, "leased");
	client->is_attached = 1;
	(void)snprintf(client->name, sizeof client->name, "%s", name == NULL ? "" : name);
	return at == 0;
}

static int note_clients(struct subject *subject, const json_t *answer)
{
	const json_t *client;
	int is_new = 0;
	size_t i;

	for (uint32_t k = 0; k < subject->client_count; k++)
		subject->client[k].is_attached = 0;
	json_array_foreach (json_object_get(answer, "clients"), i, client)
		is_new |= note_client(subject, client);
	return is_new;
}

int subject_refresh(struct subject *subject, char message[CTL_MESSAGE_BYTES])
{
	json_t *answer = NULL;
	int r = subject_ask(subject, "status", &answer, message), is_new = 0;

	if (r < 0)
		return r;
	is_new |= note_manager(subject, answer);
	json_decref(answer);
	r = subject_ask(subject, "clients", &answer, message);
	if (r < 0)
		return r;
	is_new |= note_clients(subject, answer);
	json_decref(answer);
	return is_new;
}

int subject_open(struct subject *subject, const char *given, uint32_t process, char message[CTL_MESSAGE_BYTES])
{
	int r = 0;

	*subject = (struct subject){.status = NULL};
	subject->client = calloc(SUBJECT_CLIENTS_MAX, sizeof subject->client[0]);
	(void)snprintf(message, CTL_MESSAGE_BYTES, "out of memory");
	if (subject->client == NULL)
		return -ENOMEM;
	if (process != 0)
		r = socket_of(process, subject->path, message);
	search_fill(&subject->places, process != 0 ? subject->path : given);
	if (r == 0)
		r = subject_ask(subject, "status", &subject->status, message);
	if (r < 0)
		return r;
	note_models(subject);
	(void)note_manager(subject, subject->status);
	r = subject_refresh(subject, message);
	return r < 0 ? r : 0;
}

void subject_close(struct subject *subject)
{
	json_decref(subject->status);
	free(subject->client);
	*subject = (struct subject){.status = NULL};
}

int subject_is_manager(const struct subject *subject, uint32_t process)
{
	for (uint32_t i = 0; i < subject->manager_count; i++)
		if (subject->manager[i] == process)
			return 1;
	return 0;
}

const struct subject_client *subject_client_of(const struct subject *subject, uint32_t process)
{
	for (uint32_t i = subject->client_count; i > 0; i--)
		if (subject->client[i - 1].process == process)
			return &subject->client[i - 1];
	return NULL;
}

const struct subject_client *subject_session(const struct subject *subject, uint32_t session)
{
	for (uint32_t i = subject->client_count; i > 0; i--)
		if (subject->client[i - 1].session == session)
			return &subject->client[i - 1];
	return NULL;
}
