/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions into files; see generate.h. Each session is a function of the setup and its number, so threads take whichever is
 * next and the bytes are the same for any number of them.
 */
#include "tools/sim/generate.h"

#include "base/clock.h"
#include "base/message.h"
#include "tools/sim/file.h"
#include "tools/sim/trace_write.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MESSAGE_BYTES 1024

static const char usage[] =
	"usage: cnre-sim generate --out DIR [--preset NAME] [options]\n"
	"\n"
	"  --preset NAME          glm_a glm_b hot switch olmoe k3 uniform; options change what it says\n"
	"  --tokens N             of each session (default 240)\n"
	"  --train-sessions N     train_NN_CATEGORY (default 8)\n"
	"  --eval-sessions N      eval_NN_CATEGORY, held out (default 5)\n"
	"  --seed N               (default 1)\n"
	"  --to FORMAT            binary (default): .trace, or group: .grp\n"
	"  --expert-bytes SIZE    of one expert, in headers and manifest.json (default 18M)\n"
	"  --threads N            does not change what is made (default: processors)\n"
	"  --force                replace files of DIR\n"
	"  --layers N --experts N --top-k N --ramp-layers N --hot N --vocab N --switch-every N\n"
	"  --base-sigma X --depth-ramp X --hot-boost X --category-sigma X --session-sigma X --drift-sigma X\n"
	"  --drift-tau X --token-sigma X --zipf X --noise X\n"
	"  --help\n"
	"\n"
	"example: cnre-sim generate --preset glm_a --out /tmp/glm --seed 11\n";

struct crew { /* what threads share */
	const struct sim_generation *generation;
	const struct sim_synthetic *synthetic;
	const struct sim_geometry *geometry;
	const struct record_header *header;
	pthread_mutex_t lock;
	uint32_t next; /* session of both splits; below here: under the lock */
	int result;    /* of the first that failed, and its line */
	char *message;
	size_t message_bytes;
};

struct piece { /* of work */
	struct sim_writer writer;
	uint32_t first_token, calls, object[SIM_SYNTHETIC_TOP_K_MAX];
};

static int write_row(void *context, uint32_t token, uint32_t layer, const uint32_t *expert)
{
	struct piece *piece = context;
	const struct sim_geometry *geometry = piece->writer.geometry;
	struct sim_row row = {.count = geometry->top_k,
			      .layer = layer,
			      .tokens = 1,
			      .token = piece->first_token + token,
			      .call = piece->calls++};
	uint32_t i;

	for (i = 0; i < row.count; i++)
		piece->object[i] = geometry->first_object[layer] + expert[i];
	sim_writer_row(&piece->writer, &row, piece->object);
	if (!ferror(piece->writer.file))
		return 0;
	return errno != 0 ? -errno : -EIO; /* looked at after every row, so that it is still of the write that failed */
}

static int write_session(const struct crew *crew, uint32_t number, FILE *file)
{
	const struct sim_generation *generation = crew->generation;
	int is_held_out = number >= generation->train_sessions, result;
	uint32_t within = is_held_out ? number - generation->train_sessions : number;
	struct piece piece = {.first_token = generation->to == SIM_FORMAT_GROUP ? within * generation->tokens : 0};

	result = sim_writer_open(&piece.writer, file, generation->to, crew->geometry, crew->header);
	if (result < 0)
		return result;
	result = sim_synthetic_session(crew->synthetic, is_held_out, within, within % SIM_CATEGORIES,
				       generation->tokens, write_row, &piece);
	sim_writer_close(&piece.writer);
	return result;
}

static int write_session_file(const struct crew *crew, uint32_t number, char *message)
{
	const struct sim_generation *generation = crew->generation;
	int is_held_out = number >= generation->train_sessions, result;
	uint32_t within = is_held_out ? number - generation->train_sessions : number;
	struct sim_output output;
	char path[4096];

	if ((size_t)snprintf(path, sizeof path, "%s/%s_%02u_%s.%s", generation->directory,
			     is_held_out ? "eval" : "train", within, sim_category[within % SIM_CATEGORIES],
			     generation->to == SIM_FORMAT_GROUP ? "grp" : "trace") >= sizeof path)
		return cnre_message(message, MESSAGE_BYTES, -ENAMETOOLONG, "%.80s...: %s", path,
				    strerror(ENAMETOOLONG));
	result = sim_output_open(&output, path, generation->force, message, MESSAGE_BYTES);
	if (result < 0)
		return result;
	result = write_session(crew, number, output.file);
	if (result == 0)
		return sim_output_commit(&output, generation->force, message, MESSAGE_BYTES);
	sim_output_abandon(&output);
	return cnre_message(message, MESSAGE_BYTES, result, "%s: %s", path, strerror(-result));
}

/* -1 when there is none, or one has failed. */
static int64_t next_session(struct crew *crew)
{
	uint32_t all = crew->generation->train_sessions + crew->generation->eval_sessions;
	int64_t number = -1;

	(void)pthread_mutex_lock(&crew->lock);
	if (crew->result == 0 && crew->next < all)
		number = crew->next++;
	(void)pthread_mutex_unlock(&crew->lock);
	return number;
}

static void *work(void *context)
{
	struct crew *crew = context;
	char message[MESSAGE_BYTES];
	int64_t number;
	int result;

	while ((number = next_session(crew)) >= 0) {
		result = write_session_file(crew, (uint32_t)number, message);
		if (result == 0)
			continue;
		(void)pthread_mutex_lock(&crew->lock);
		if (crew->result == 0)
			crew->result = cnre_message(crew->message, crew->message_bytes, result, "%s", message);
		(void)pthread_mutex_unlock(&crew->lock);
	}
	return NULL;
}

/* This thread works too: where no other can be started, it does it all. */
static int write_sessions(struct crew *crew)
{
	pthread_t thread[SIM_THREADS_MAX];
	uint32_t started = 0;

	while (started + 1 < crew->generation->threads && pthread_create(&thread[started], NULL, work, crew) == 0)
		started++;
	(void)work(crew);
	while (started > 0)
		(void)pthread_join(thread[--started], NULL);
	return crew->result;
}

static void fill_geometry(const struct sim_generation *generation, struct sim_geometry *geometry,
			  struct record_layer *layer)
{
	uint32_t i, experts = generation->setup.experts;

	geometry->layer_count = generation->setup.layers;
	geometry->top_k = generation->setup.top_k;
	geometry->object_count = generation->setup.layers * experts;
	for (i = 0; i < generation->setup.layers; i++) {
		geometry->number[i] = i;
		geometry->experts[i] = experts;
		geometry->first_object[i + 1] = (i + 1) * experts;
		layer[i] = (struct record_layer){i, experts, generation->expert_bytes, generation->expert_bytes};
	}
}

static int write_manifest(const struct sim_generation *generation, char *message, size_t message_bytes)
{
	unsigned long long bytes = generation->expert_bytes;
	struct sim_output output;
	char path[4096];
	uint32_t i;
	int result;

	if ((size_t)snprintf(path, sizeof path, "%s/manifest.json", generation->directory) >= sizeof path)
		return cnre_message(message, message_bytes, -ENAMETOOLONG, "%.80s...: %s", path,
				    strerror(ENAMETOOLONG));
	result = sim_output_open(&output, path, generation->force, message, message_bytes);
	if (result < 0)
		return result;
	(void)fprintf(output.file, "{\"layers\": {\n");
	for (i = 0; i < generation->setup.layers; i++)
		(void)fprintf(output.file,
			      "  \"%u\": {\"resident_bytes\": %llu, \"read_bytes\": %llu, \"max_experts\": %u}%s\n", i,
			      bytes, bytes, generation->setup.experts, i + 1 < generation->setup.layers ? "," : "");
	(void)fprintf(output.file, "}}\n");
	return sim_output_commit(&output, generation->force, message, message_bytes);
}

static int write_all(struct crew *crew, struct sim_geometry *geometry, struct record_layer *layer)
{
	const struct sim_generation *generation = crew->generation;
	struct record_header header = {
		.layer_count = generation->setup.layers, .top_k = generation->setup.top_k, .policy = "generated"};
	int result;

	fill_geometry(generation, geometry, layer);
	header.layer = layer;
	crew->geometry = geometry;
	crew->header = &header;
	result = write_sessions(crew);
	return result < 0 ? result : write_manifest(generation, crew->message, crew->message_bytes);
}

int sim_generation_write(const struct sim_generation *generation, char *message, size_t message_bytes)
{
	struct crew crew = {.generation = generation,
			    .lock = PTHREAD_MUTEX_INITIALIZER,
			    .message = message,
			    .message_bytes = message_bytes};
	struct record_layer *layer = calloc(SIM_SYNTHETIC_LAYERS_MAX, sizeof *layer);
	struct sim_geometry *geometry = calloc(1, sizeof *geometry);
	struct sim_synthetic *synthetic = NULL;
	int result = layer == NULL || geometry == NULL ? -ENOMEM : sim_synthetic_open(&synthetic, &generation->setup);

	if (result < 0)
		(void)cnre_message(message, message_bytes, result, "a router of such numbers: %s", strerror(-result));
	else if (mkdir(generation->directory, 0777) < 0 && errno != EEXIST)
		result = cnre_message(message, message_bytes, -errno, "%s: %s", generation->directory, strerror(errno));
	crew.synthetic = synthetic;
	if (result == 0)
		result = write_all(&crew, geometry, layer);
	(void)sim_synthetic_close(synthetic);
	free(geometry);
	free(layer);
	return result;
}

int sim_generate(int argc, char **argv)
{
	struct sim_generation generation;
	char message[MESSAGE_BYTES] = "";
	int64_t start_ns = cnre_clock_now_ns();
	uint32_t sessions;

	if (sim_generation_parse(argc, argv, &generation, message, sizeof message) < 0) {
		(void)fprintf(stderr, "cnre-sim: generate: %s; see cnre-sim generate --help\n", message);
		return 2;
	}
	if (generation.wants_help) {
		(void)fputs(usage, stdout);
		return 0;
	}
	if (sim_generation_write(&generation, message, sizeof message) < 0) {
		(void)fprintf(stderr, "cnre-sim: generate: %s\n", message);
		return 1;
	}
	sessions = generation.train_sessions + generation.eval_sessions;
	(void)printf("wrote %s: %u sessions of %u tokens in %.1f s\n", generation.directory, sessions,
		     generation.tokens, (double)(cnre_clock_now_ns() - start_ns) / 1e9);
	return 0;
}
