/* SPDX-License-Identifier: Apache-2.0 */
/* See source.h. */
#include "tools/top/source.h"

#include "tools/ctl/answer.h"
#include "tools/ctl/connection.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(TOP_MESSAGE_BYTES == CTL_MESSAGE_BYTES, "messages are passed on");

/* Takes the request's reference. */
static int ask(const struct top_source *source, int connected, json_t *request, json_t **ret_answer,
	       char message[TOP_MESSAGE_BYTES])
{
	char *question = request == NULL ? NULL : json_dumps(request, JSON_COMPACT), *text = NULL;
	size_t bytes = 0;
	int r = -ENOMEM;

	json_decref(request);
	(void)snprintf(message, TOP_MESSAGE_BYTES, "out of memory");
	if (question != NULL)
		r = connection_ask(connected,
				   &(struct connection_question){.text = question,
								 .bytes = strlen(question),
								 .stop_fd = source->stop_fd,
								 .timeout_ns = CONNECTION_TIMEOUT_NS},
				   &text, &bytes, message);
	if (r == 0 && (r = answer_parse(text, bytes, ret_answer)) < 0)
		(void)snprintf(message, TOP_MESSAGE_BYTES, "the answer is not the JSON that was agreed: install programs of one release");
	free(question);
	free(text);
	return r;
}

static int learn_models(struct top_source *source, int connected, char message[TOP_MESSAGE_BYTES])
{
	const json_t *model;
	json_t *status = NULL;
	size_t i;
	int r = ask(source, connected, json_pack("{s:s}", "verb", "status"), &status, message);

	if (r < 0)
		return r;
	source->model_count = 0;
	json_array_foreach (json_object_get(status, "models"), i, model) {
		const char *name = json_string_value(json_object_get(model, "name"));

		if (name == NULL || strlen(name) >= SOURCE_NAME_BYTES || source->model_count == SOURCE_MODELS_MAX)
			continue;
		(void)snprintf(source->name[source->model_count++], SOURCE_NAME_BYTES, "%s", name);
	}
	json_decref(status);
	if (source->model_count > 0)
		return 0;
	(void)snprintf(message, TOP_MESSAGE_BYTES, "the manager names no model: install programs of one release");
	return -EBADMSG;
}

static const char *model_of(const struct top_source *source, uint32_t turn)
{
	return source->model != NULL ? source->model : source->name[turn % source->model_count];
}

/* One member of the sample. */
static int add(const struct top_source *source, int connected, const char *verb, const char *model, json_t *sample,
	       char message[TOP_MESSAGE_BYTES])
{
	json_t *answer = NULL;
	int r = ask(source, connected,
		    model != NULL ? json_pack("{s:s, s:s}", "verb", verb, "model", model) : json_pack("{s:s}", "verb", verb), &answer,
		    message);

	if (r == 0 && json_object_set_new(sample, verb, answer) < 0)
		r = -ENOMEM;
	return r;
}

/* Only a manager that was to use GPUs says of its layers what is there, and only that one is asked how they are. */
static int has_gpus(const json_t *sample)
{
	const json_t *layer;
	size_t i;

	json_array_foreach (json_object_get(json_object_get(sample, "experts"), "layers"), i, layer)
		if (json_object_get(layer, "vram") != NULL)
			return 1;
	return 0;
}

/* Of status only what is said of VRAM: the rest would make a recording large. */
static int add_vram(const struct top_source *source, int connected, json_t *sample, char message[TOP_MESSAGE_BYTES])
{
	json_t *status = NULL, *vram;
	int r = ask(source, connected, json_pack("{s:s}", "verb", "status"), &status, message);

	if (r < 0)
		return r;
	vram = json_object_get(status, "vram");
	if (vram != NULL && json_object_set(sample, "vram", vram) < 0)
		r = -ENOMEM;
	json_decref(status);
	return r;
}

static int fill(struct top_source *source, int connected, uint32_t turn, json_t *sample, char message[TOP_MESSAGE_BYTES])
{
	static const char *const verbs[] = {"clients", "drives", "stats"};
	int r = source->model == NULL && source->model_count == 0 ? learn_models(source, connected, message) : 0;

	for (size_t i = 0; r == 0 && i < sizeof verbs / sizeof verbs[0]; i++)
		r = add(source, connected, verbs[i], NULL, sample, message);
	if (r == 0)
		r = add(source, connected, "experts", model_of(source, turn), sample, message);
	if (r == 0 && has_gpus(sample))
		r = add_vram(source, connected, sample, message);
	if (r < 0 && r != -EINTR)
		source->model_count = 0; /* the next manager may serve others */
	return r;
}

int top_source_take(struct top_source *source, uint32_t turn, json_t **ret_sample, char message[TOP_MESSAGE_BYTES])
{
	char path[SEARCH_PATH_BYTES];
	int connected = search_connect(&source->places, path, message), r;
	json_t *sample;

	if (connected < 0)
		return connected;
	sample = json_object();
	r = sample == NULL ? -ENOMEM : fill(source, connected, turn, sample, message);
	(void)close(connected);
	if (r < 0)
		json_decref(sample);
	else
		*ret_sample = sample;
	return r;
}
