/* SPDX-License-Identifier: Apache-2.0 */
/* From log words to who learns from them; see feed.h. */
#include "manager/feed.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "manager/history.h"
#include "manager/layer_count.h"
#include "manager/metrics.h"
#include "manager/residency.h"
#include "manager/session.h"
#include "manager/vram.h"
#include "policy/policy.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RECORDED_NONE UINT32_MAX

struct counted {
	uint64_t accesses, misses;
};

struct feed {
	struct history *history;
	struct curves *curves;
	struct tuner *tuner;
	struct counted *layer;       /* [layer_count] of all models */
	uint32_t layer_count;
	uint32_t accesses_since_age;
	uint64_t tokens;
	struct recorder *recorder;   /* kept when it is over, for its status */
	const struct served_model *recorded;
	uint32_t *recorded_layer;    /* [its layer_count] number in the trace: layers without experts have none */
	int is_announced;            /* that it is over */
};

/* The visits of one client to one layer. */
struct visits {
	uint64_t wait_ns, joins;     /* of its accounts, at the beginning of the latest visit */
	uint32_t misses;             /* of the latest visit so far */
	int was_visited;
	uint32_t announced_tokens;   /* of a visit whose first access is awaited; 0: none is */
	int64_t clock_ns;            /* until when its visits would take with FEED_VISIT_NS each; the past is none */
};

struct feed_client {
	struct histogram wait;       /* of visits that missed */
	uint32_t layer_count;
	struct visits visits[];
};

/* ---- life ---- */

static int open_curves(struct feed *feed, const struct manager *manager)
{
	uint32_t *layer_of = calloc(manager->owner_count, sizeof *layer_of);
	int r;

	if (layer_of == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < manager->model_count; i++) {
		const struct served_model *model = &manager->model[i];

		for (uint32_t object = 0; object < model->catalog->object_count; object++)
			layer_of[model->first_owner + object] = model->first_layer + model->catalog->object[object].layer;
	}
	r = curves_create(&feed->curves, manager->owner_count, feed->layer_count, layer_of);
	free(layer_of);
	return r;
}

static void count_layers(struct feed *feed, struct manager *manager)
{
	for (uint32_t i = 0; i < manager->model_count; i++) {
		manager->model[i].first_layer = feed->layer_count;
		feed->layer_count += manager->model[i].catalog->layer_count;
	}
}

int feed_open(struct manager *manager, const char *usage_folder, char *message, size_t message_bytes)
{
	struct feed *feed = calloc(1, sizeof *feed);
	int r;

	if (feed == NULL)
		return cnre_message(message, message_bytes, -ENOMEM, "out of memory");
	manager->feed = feed;
	count_layers(feed, manager);
	r = history_open(&feed->history, manager, usage_folder, message, message_bytes);
	if (r < 0)
		goto fail;
	feed->layer = calloc(feed->layer_count, sizeof *feed->layer);
	r = feed->layer == NULL ? -ENOMEM : open_curves(feed, manager);
	if (r == 0)
		r = tuner_create(&feed->tuner, feed->layer_count);
	if (r == 0)
		return 0;
	(void)cnre_message(message, message_bytes, r, "cannot make the tables of layers: %s", strerror(-r));
fail:
	feed_close(manager);
	return r;
}

static void drop_recorder(struct feed *feed)
{
	feed->recorder = recorder_close(feed->recorder);
	free(feed->recorded_layer);
	feed->recorded_layer = NULL;
	feed->recorded = NULL;
	feed->is_announced = 0;
}

void feed_close(struct manager *manager)
{
	struct feed *feed = manager->feed;

	if (feed == NULL)
		return;
	drop_recorder(feed);
	(void)history_close(feed->history);
	(void)curves_destroy(feed->curves);
	(void)tuner_destroy(feed->tuner);
	free(feed->layer);
	free(feed);
	manager->feed = NULL;
}

const uint32_t *feed_uses(struct manager *manager)
{
	return history_uses(manager->feed->history);
}

void feed_add_uses(struct manager *manager, uint32_t owner, uint32_t uses)
{
	history_count(manager->feed->history, owner, uses);
}

int feed_keeps_uses(const struct manager *manager, const struct served_model *model)
{
	return history_is_kept(manager->feed->history, model->number);
}

void feed_policy_changed(struct manager *manager)
{
	tuner_apply(manager->feed->tuner, residency_policy(manager));
}

struct feed_client *feed_client_close(struct feed_client *client)
{
	free(client);
	return NULL;
}

/* ---- recording ---- */

static int is_recorded(const struct feed *feed, const struct session *session)
{
	return feed->recorder != NULL && feed->recorded == session->model;
}

static void record(struct feed *feed, const struct session *session, enum record_kind kind, uint64_t a, uint64_t b,
		   uint64_t c)
{
	struct record what = {.kind = kind, .client = session->number, .a = a, .b = b, .c = c};

	if (is_recorded(feed, session))
		recorder_put(feed->recorder, &what);
}

static uint32_t trace_layer(const struct feed *feed, const struct session *session, uint32_t layer)
{
	return is_recorded(feed, session) ? feed->recorded_layer[layer] : RECORDED_NONE;
}

/* ---- what clients did ---- */

static struct visits *visits_of(struct session *session, uint32_t layer)
{
	uint32_t layers = session->model->catalog->layer_count;

	if (session->feed == NULL) {
		session->feed = calloc(1, sizeof *session->feed + layers * sizeof session->feed->visits[0]);
		if (session->feed == NULL)
			return NULL; /* nothing is learned from its visits */
		session->feed->layer_count = layers;
	}
	return &session->feed->visits[layer];
}

static void note_wait(struct manager *manager, struct session *session, uint32_t layer, int64_t wait_ns)
{
	histogram_add(&session->feed->wait, wait_ns);
	histogram_add(&manager->layer_counts->layer[session->model->first_layer + layer].wait, wait_ns);
	metrics_visit_waited(manager, session, wait_ns);
}

/*
 * The visit before is over: what its callers waited has been added to the account since, for the account is written when
 * a wait ends, and this visit's have just begun: its lookups are logged before any waits. Misses are counted from the log,
 * for their account is written at once.
 */
static void end_visit(struct manager *manager, struct session *session, uint32_t layer, struct visits *visits)
{
	struct feed *feed = manager->feed;
	uint64_t wait_ns = session_layer_wait_ns(session, layer), joins = session_layer_joins(session, layer);
	uint64_t joined = joins - visits->joins;
	uint32_t physical = joined < visits->misses ? visits->misses - (uint32_t)joined : 0;
	uint64_t wait_us = (wait_ns - visits->wait_ns) / 1000; /* whole ones, as in a recording: a replay learns the same */

	if (visits->was_visited && wait_us <= FEED_WAIT_US_MAX) {
		tuner_visit(feed->tuner, residency_policy(manager), session->model->first_layer + layer, physical,
			    (double)wait_us);
		if (visits->misses > 0)
			note_wait(manager, session, layer, (int64_t)wait_us * 1000);
		if (trace_layer(feed, session, layer) != RECORDED_NONE)
			record(feed, session, RECORD_WAIT, trace_layer(feed, session, layer), physical, wait_us);
	}
	visits->wait_ns = wait_ns;
	visits->joins = joins;
	visits->misses = 0;
	visits->was_visited = 1;
}

/* 1: a visit more of this client may turn the clock of the layer; see FEED_VISIT_NS. */
static int may_turn_clock(struct visits *visits)
{
	int64_t now_ns = cnre_clock_now_ns();

	if (visits->clock_ns < now_ns)
		visits->clock_ns = now_ns;
	if (visits->clock_ns - now_ns >= (int64_t)FEED_VISITS_BURST * FEED_VISIT_NS)
		return 0;
	visits->clock_ns += FEED_VISIT_NS;
	return 1;
}

static void begin_visit(struct manager *manager, struct session *session, uint32_t layer, struct visits *visits)
{
	uint32_t tokens = visits->announced_tokens;

	visits->announced_tokens = 0;
	if (!may_turn_clock(visits))
		return;
	end_visit(manager, session, layer, visits);
	if (trace_layer(manager->feed, session, layer) != RECORDED_NONE)
		record(manager->feed, session, RECORD_VISIT, trace_layer(manager->feed, session, layer), tokens, 0);
	residency_visit(manager, session, layer, tokens);
	vram_visit(manager, session->model, layer, tokens);
}

void feed_visit(struct manager *manager, struct session *session, uint32_t layer, uint32_t token_count)
{
	struct visits *visits = visits_of(session, layer);

	(void)manager;
	if (visits != NULL)
		visits->announced_tokens = token_count > 0 ? token_count : 1; /* input: no visit is of nothing */
}

/*
 * A hit in VRAM is no access of the object in RAM: there it may age and go, since nobody needs it, and the curves of RAM say what
 * slots there would be worth. The policy of VRAM hears of every lookup.
 */
void feed_access(struct manager *manager, struct session *session, uint32_t object, enum feed_served served)
{
	struct feed *feed = manager->feed;
	const struct served_model *model = session->model;
	uint32_t layer = model->catalog->object[object].layer, owner = model->first_owner + object;
	struct visits *visits = visits_of(session, layer);
	int hit = served != FEED_SERVED_BY_DRIVE;

	if (visits != NULL && visits->announced_tokens > 0)
		begin_visit(manager, session, layer, visits);
	if (visits != NULL)
		visits->misses += !hit;
	feed->layer[model->first_layer + layer].accesses++;
	feed->layer[model->first_layer + layer].misses += !hit;
	if (served != FEED_SERVED_BY_VRAM)
		curves_access(feed->curves, owner);
	if (++feed->accesses_since_age == FEED_CURVE_AGE_ACCESSES) {
		feed->accesses_since_age = 0;
		curves_age(feed->curves);
	}
	history_count(feed->history, owner, 1);
	record(feed, session, RECORD_ACCESS, object, (uint64_t)hit, 0);
	vram_access(session, owner, served == FEED_SERVED_BY_VRAM);
	if (served != FEED_SERVED_BY_VRAM)
		residency_access(manager, owner, hit);
}

void feed_token_end(struct manager *manager, struct session *session, uint32_t token_count)
{
	manager->feed->tokens += token_count;
	vram_tokens(session, token_count);
	record(manager->feed, session, RECORD_TOKEN, token_count, 0, 0);
}

void feed_lost(struct manager *manager, struct session *session, uint64_t words)
{
	struct feed_client *client = session->feed;

	record(manager->feed, session, RECORD_LOST, words, 0, 0);
	for (uint32_t layer = 0; client != NULL && layer < client->layer_count; layer++)
		/* What it waited since belongs to visits that nobody heard of. */
		client->visits[layer].was_visited = 0;
}

/* ---- time ---- */

static void announce_end(struct feed *feed)
{
	struct recorder_status status;

	recorder_get_status(feed->recorder, &status);
	if (status.error < 0)
		cnre_log(CNRE_LOG_ERROR, "trace: the recording ended: %s", strerror(-status.error));
	else
		cnre_log(CNRE_LOG_NOTICE, "trace: %llu records in %llu bytes%s", (unsigned long long)status.records,
			 (unsigned long long)status.bytes, status.is_full ? ", as many as were asked for" : "");
}

void feed_tick(struct manager *manager, int64_t now_ns)
{
	struct feed *feed = manager->feed;

	history_tick(feed->history, manager->writer, now_ns);
	if (feed->recorder != NULL && !feed->is_announced && recorder_is_over(feed->recorder)) {
		feed->is_announced = 1;
		announce_end(feed);
	}
}

int64_t feed_deadline_ns(const struct manager *manager)
{
	return history_deadline_ns(manager->feed->history);
}

/* ---- a recording ---- */

static uint32_t number_layers(const struct model_catalog *catalog, uint32_t *ret_number)
{
	uint32_t count = 0;

	for (uint32_t layer = 0; layer < catalog->layer_count; layer++)
		ret_number[layer] = catalog->layer[layer].expert_count > 0 ? count++ : RECORDED_NONE;
	return count;
}

static void fill_layer(const struct model_catalog *catalog, uint32_t layer, struct record_layer *ret_layer)
{
	const struct model_shape *shape = &catalog->shape[catalog->object[catalog->layer[layer].first_object].shape];

	*ret_layer = (struct record_layer){
		.number = layer,
		.experts = catalog->layer[layer].expert_count,
		.resident_bytes = shape->slab_bytes,
		.read_bytes = shape->payload_bytes,
	};
}

/* Residents of the model, whom the policy would let go first at the front. */
static uint32_t list_residents(struct manager *manager, const struct served_model *model, uint32_t *ret_object)
{
	struct policy *policy = residency_policy(manager);
	uint32_t owner, count = 0;

	policy_seek(policy, POLICY_NONE);
	while ((owner = policy_next(policy)) != POLICY_NONE)
		if (owner >= model->first_owner && owner - model->first_owner < model->catalog->object_count)
			ret_object[count++] = owner - model->first_owner;
	return count;
}

static int start(struct manager *manager, const struct served_model *model, int fd, uint64_t bytes_max)
{
	const struct model_catalog *catalog = model->catalog;
	struct feed *feed = manager->feed;
	struct record_header header = {.top_k = catalog->top_k, .budget_bytes = residency_budget_bytes(manager)};
	int r = -ENOMEM;

	(void)strncpy(header.policy, residency_policy_name(manager), sizeof header.policy - 1);
	feed->recorded_layer = calloc(catalog->layer_count, sizeof *feed->recorded_layer);
	header.layer = calloc(catalog->layer_count, sizeof *header.layer);
	header.resident = calloc(catalog->object_count, sizeof *header.resident);
	if (feed->recorded_layer == NULL || header.layer == NULL || header.resident == NULL)
		goto done;
	header.layer_count = number_layers(catalog, feed->recorded_layer);
	for (uint32_t layer = 0; layer < catalog->layer_count; layer++)
		if (feed->recorded_layer[layer] != RECORDED_NONE)
			fill_layer(catalog, layer, &header.layer[feed->recorded_layer[layer]]);
	header.resident_count = list_residents(manager, model, header.resident);
	r = recorder_open(&feed->recorder, manager->writer, fd, &header, bytes_max);
	if (r < 0)
		goto done;
	feed->recorded = model;
	recorder_flush(feed->recorder); /* its header: a full drive is said now, and whoever lost our answer sees a file in use */
done:
	free(header.layer);
	free(header.resident);
	if (r < 0) {
		free(feed->recorded_layer);
		feed->recorded_layer = NULL;
	}
	return r;
}

int feed_record(struct manager *manager, const struct served_model *model, int fd, uint64_t bytes_max, char *message,
		size_t message_bytes)
{
	struct feed *feed = manager->feed;
	int r;

	if (feed->recorder != NULL && !recorder_is_over(feed->recorder))
		return cnre_message(message, message_bytes, -EALREADY,
				    "a recording is under way: end it first with cnrectl trace stop");
	drop_recorder(feed);
	r = start(manager, model, fd, bytes_max);
	if (r < 0)
		return cnre_message(message, message_bytes, r, "cannot record: %s",
				    r == -EINVAL ? "the file is no regular file" : strerror(-r));
	return 0;
}

int feed_record_stop(struct manager *manager)
{
	struct feed *feed = manager->feed;

	if (feed->recorder == NULL || recorder_is_over(feed->recorder))
		return -ENOENT;
	recorder_stop(feed->recorder);
	return 0;
}

void feed_record_flush(struct manager *manager)
{
	struct recorder *recorder = manager->feed->recorder;

	if (recorder != NULL && !recorder_is_over(recorder))
		recorder_flush(recorder);
}

enum feed_recording feed_record_status(const struct manager *manager, struct recorder_status *ret_status)
{
	const struct feed *feed = manager->feed;

	*ret_status = (struct recorder_status){0};
	if (feed->recorder == NULL)
		return FEED_RECORDING_NONE;
	recorder_get_status(feed->recorder, ret_status);
	if (recorder_is_over(feed->recorder))
		return FEED_RECORDING_OVER;
	return recorder_is_stopping(feed->recorder) ? FEED_RECORDING_ENDING : FEED_RECORDING_ON;
}

/* ---- for reports ---- */

void feed_get_layer(const struct manager *manager, const struct served_model *model, uint32_t layer,
		    struct feed_layer *ret_layer)
{
	const struct feed *feed = manager->feed;
	const struct counted *counted = &feed->layer[model->first_layer + layer];

	*ret_layer = (struct feed_layer){.accesses = counted->accesses,
					 .misses = counted->misses,
					 .distances = curves_distances(feed->curves, model->first_layer + layer)};
	tuner_get_layer(feed->tuner, model->first_layer + layer, &ret_layer->waits);
}

const struct histogram *feed_client_wait(const struct feed_client *client)
{
	return client == NULL || client->wait.count == 0 ? NULL : &client->wait;
}

uint64_t feed_tokens(const struct manager *manager)
{
	return manager->feed->tokens;
}

double feed_miss_share(const struct manager *manager, const struct served_model *model, uint32_t layer, uint32_t slots)
{
	const struct curves *curves = manager->feed->curves;
	uint64_t accesses = curves_accesses(curves, model->first_layer + layer);

	return accesses == 0 ? NAN : (double)curves_misses(curves, model->first_layer + layer, slots) / (double)accesses;
}
