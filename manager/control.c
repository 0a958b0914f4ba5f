/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs of the control plane; see control.h. */
#include "manager/control.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "manager/control_inner.h"
#include "manager/kv.h"
#include "manager/measure.h"
#include "manager/pool.h"
#include "manager/report.h"
#include "manager/reservation.h"
#include "manager/residency.h"
#include "manager/session.h"
#include "manager/settings.h"
#include "manager/vram.h"
#include "policy/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void control_refuse(struct answer *answer, int status, const char *message)
{
	answer->status = status;
	(void)snprintf(answer->message, sizeof answer->message, "%s", message);
}

/*
 * A new budget is decided as the first one was: by what was asked for, the machine, the control groups, and what the
 * models need. Status then shows this decision.
 */
static int decide_again(struct manager *manager, uint64_t *bytes, char *message, size_t message_bytes)
{
	static struct budget_inputs inputs; /* large */
	const struct settings *settings = manager->settings;
	uint64_t least = POOL_WINDOWS_MIN * manager->window_bytes;
	struct budget_request request = {
		.configured_bytes = *bytes,
		.configured_source = BUDGET_SET_RAM,
		.needed_bytes = manager->slab_bytes_total > least ? manager->slab_bytes_total : least,
		.private_bytes = settings->private_bytes + kv_claim_bytes(manager) + vram_claim_bytes(settings),
		.may_use_huge = {settings->hugepages <= SETTINGS_HUGEPAGES_2M,
				 settings->hugepages <= SETTINGS_HUGEPAGES_1G},
	};
	uint64_t now_bytes = cnre_counter_get(&manager->counters->budget_bytes);
	struct pool_status pool;
	int r = budget_read_inputs("/", &inputs, message, message_bytes);

	if (r < 0)
		return r;
	budget_read_node("/", settings->numa, &inputs);
	pool_get_status(manager->pool, &pool);
	request.held_bytes = pool.backed_bytes;
	request.held_huge_bytes = pool.bytes_by_backing[CNRE_BACKING_1G] + pool.bytes_by_backing[CNRE_BACKING_2M];
	budget_decide(&inputs, &request, &manager->budget);
	if (manager->budget.bytes < *bytes)
		cnre_log(CNRE_LOG_WARNING, "set ram: bounded by %.300s: %.200s",
			 manager->budget.term[manager->budget.binding].source,
			 manager->budget.term[manager->budget.binding].advice);
	/* Who asks for more never gets less than there is, whatever others took meanwhile. */
	if (now_bytes < *bytes && manager->budget.bytes < now_bytes)
		*bytes = now_bytes;
	else
		*bytes = manager->budget.bytes;
	return 0;
}

/* A smaller pool has room for fewer loads beside its clients: first that promise shrinks, then the budget, or neither. */
static int set_budget(struct manager *manager, uint64_t bytes)
{
	uint32_t before = manager->loads_max;
	int r;

	manager->loads_max = reservation_loads(manager, bytes / manager->window_bytes);
	reservation_apply(manager);
	r = residency_set_budget(manager, bytes);
	if (r < 0)
		manager->loads_max = before;
	reservation_apply(manager);
	return r;
}

static void answer_set_ram(struct manager *manager, const char *value, struct answer *answer)
{
	uint64_t bytes;
	int r;

	if (value == NULL || cnre_size_parse(value, &bytes) < 0) {
		control_refuse(answer, -EINVAL, "not a size: write for example 80G or 512M");
		return;
	}
	r = decide_again(manager, &bytes, answer->message, sizeof answer->message);
	if (r < 0) {
		answer->status = r;
		return;
	}
	r = set_budget(manager, bytes);
	if (r == -ENOSPC) {
		char asked[16], least[16];

		answer->status = r;
		(void)snprintf(
			answer->message, sizeof answer->message,
			"%s is below what must stay: %u slabs are reserved by clients and %u by reads in flight, %s in all; detach clients or ask for more",
			cnre_size_format(bytes, asked, sizeof asked), manager->sessions->reserved_slabs,
			manager->loads_max,
			cnre_size_format(reservation_needed(manager) * manager->window_bytes, least, sizeof least));
		return;
	}
	if (r < 0) {
		control_refuse(answer, r, strerror(-r));
		return;
	}
	measure_budget_changed(manager);
	pressure_budget_changed(manager);
	cnre_log(CNRE_LOG_NOTICE, "set ram: the budget is now %llu bytes%s", (unsigned long long)bytes,
		 r > 0 ? ", some of it still leased" : "");
	answer->json = json_pack("{s:I, s:I, s:b}", "budget_bytes", (json_int_t)bytes, "resident_bytes",
				 (json_int_t)cnre_counter_get(&manager->counters->resident_bytes), "trimming", r > 0);
}

static void answer_set(struct manager *manager, const json_t *request, struct answer *answer)
{
	const char *key = json_string_value(json_object_get(request, "key"));

	if (key != NULL && strcmp(key, "ram") == 0)
		answer_set_ram(manager, json_string_value(json_object_get(request, "value")), answer);
	else if (key != NULL && strcmp(key, "vram") == 0)
		control_set_vram(manager, json_string_value(json_object_get(request, "value")), answer);
	else if (key != NULL && strcmp(key, "kv-ram") == 0)
		control_set_kv_ram(manager, json_string_value(json_object_get(request, "value")), answer);
	else
		control_refuse(answer, -EINVAL, "no such setting: \"ram\", \"kv-ram\" and \"vram\" can be set");
}

static void answer_reset(struct manager *manager, struct answer *answer)
{
	uint32_t evicted, kept;

	residency_evict_all(manager, &evicted, &kept);
	answer->json = json_pack("{s:I, s:I}", "evicted", (json_int_t)evicted, "kept", (json_int_t)kept);
}

static void refuse_policy(struct answer *answer)
{
	char known[200] = "";

	for (unsigned i = 0; policy_name_at(i) != NULL; i++)
		(void)snprintf(known + strlen(known), sizeof known - strlen(known), " %s", policy_name_at(i));
	answer->status = -ENOENT;
	(void)snprintf(answer->message, sizeof answer->message, "no such policy: known are%s", known);
}

/* The state segment keeps what was said. */
int control_set_policy(struct manager *manager, const char *name, const char *who)
{
	int r = strlen(name) >= CNRE_NAME_BYTES ? -ENOENT : residency_set_policy(manager, name);

	if (r < 0)
		return r;
	(void)snprintf(manager->state->policy, sizeof manager->state->policy, "%s", name);
	cnre_log(CNRE_LOG_NOTICE, "policy: %s from now on, as %s asked", name, who);
	return 0;
}

static void answer_policy(struct manager *manager, const json_t *request, struct answer *answer)
{
	const char *name = json_string_value(json_object_get(request, "name"));
	int r = name == NULL ? -ENOENT : control_set_policy(manager, name, "cnrectl");

	if (r == -ENOENT)
		refuse_policy(answer);
	else if (r == -EINVAL)
		control_refuse(answer, r, "this policy has a pool a layer, and the manager was started with another --pool");
	else if (r < 0)
		control_refuse(answer, r, strerror(-r));
	if (r < 0)
		return;
	answer->json = json_pack("{s:s}", "policy", residency_policy_name(manager));
}

/* 1: it was a question, and is answered. */
static int answer_question(struct manager *manager, const struct peer *peer, const json_t *request, struct answer *answer)
{
	const char *verb = json_string_value(json_object_get(request, "verb"));

	if (strcmp(verb, "status") == 0)
		answer->json = report_status(manager);
	else if (strcmp(verb, "drives") == 0)
		answer->json = report_drives(manager);
	else if (strcmp(verb, "experts") == 0)
		control_experts(manager, request, answer);
	else if (strcmp(verb, "why") == 0)
		control_why(manager, request, answer);
	else if (strcmp(verb, "kv") == 0 && json_object_get(request, "action") == NULL)
		answer->json = kv_report(manager, peer);
	else if (strcmp(verb, "usage") == 0 && control_is_usage_question(request))
		control_usage(manager, request, NULL, answer);
	else if (strcmp(verb, "warm") == 0 && control_is_warm_question(request))
		control_warm(manager, request, NULL, answer);
	else
		return 0;
	return 1;
}

/* Why a file was refused quotes it, and an asker may have no right to read it: the log and its owner may know. */
static void hide_reason(json_t *told)
{
	const char *reason = json_string_value(json_object_get(told, "error"));

	if (reason != NULL && reason[0] != '\0')
		(void)json_object_set_new(told, "error", json_string("only root and the manager's own user are told why"));
}

static void hide_reasons(json_t *answer)
{
	hide_reason(json_object_get(answer, "warm")); /* of status */
	if (json_object_get(answer, "file") != NULL)
		hide_reason(answer); /* of warm, and of usage */
}

static void answer_order(struct manager *manager, const struct peer *peer, const json_t *request, int *fd, struct answer *answer)
{
	const char *verb = json_string_value(json_object_get(request, "verb"));

	if (strcmp(verb, "set") == 0)
		answer_set(manager, request, answer);
	else if (strcmp(verb, "reset") == 0)
		answer_reset(manager, answer);
	else if (strcmp(verb, "policy") == 0)
		answer_policy(manager, request, answer);
	else if (strcmp(verb, "kv") == 0)
		control_kv(manager, peer, request, fd, answer);
	else if (strcmp(verb, "usage") == 0)
		control_usage(manager, request, fd, answer);
	else if (strcmp(verb, "warm") == 0)
		control_warm(manager, request, fd, answer);
	else
		control_trace(manager, request, fd, answer);
}

static int is_order(const char *verb)
{
	static const char *const orders[] = {"set", "reset", "policy", "trace", "kv", "usage", "warm"};

	for (size_t i = 0; i < CNRE_COUNT_OF(orders); i++)
		if (strcmp(orders[i], verb) == 0)
			return 1;
	return 0;
}

static void answer_verb(struct manager *manager, const struct peer *peer, const json_t *request, int *fd,
			struct answer *answer)
{
	const char *verb = json_string_value(json_object_get(request, "verb"));

	if (verb == NULL)
		control_refuse(answer, -EINVAL, "the request names no verb");
	else if (answer_question(manager, peer, request, answer))
		hide_reasons(peer_may_administer(peer) ? NULL : answer->json); /* anybody who may connect may ask */
	else if (!is_order(verb))
		control_refuse(answer, -EINVAL,
			       "no such verb: status, stats, clients, layers, experts, why, drives, kv, set, reset, policy, trace, usage, warm");
	else if (!peer_may_administer(peer))
		control_refuse(answer, -EPERM, "only root and the manager's own user may change it");
	else
		answer_order(manager, peer, request, fd, answer);
	if (answer->status == 0 && answer->json == NULL)
		control_refuse(answer, -ENOMEM, "out of memory");
}

/* text NULL: only the message. */
static int send_text(int socket, uint32_t id, struct answer *answer, const char *text, size_t bytes)
{
	struct cnre_wire_reply reply = {.text_bytes = 0};
	int fd = text == NULL ? -1 : control_reply_open(text, bytes), r;

	if (text != NULL && fd < 0)
		control_refuse(answer, fd, strerror(-fd));
	else if (text != NULL)
		reply.text_bytes = bytes;
	reply.status = answer->status;
	(void)snprintf(reply.text, sizeof reply.text, "%s", answer->message);
	cnre_wire_fill(&reply.header, CNRE_WIRE_REPLY, id, sizeof reply);
	r = cnre_wire_send(socket, &reply, sizeof reply, &fd, fd >= 0 ? 1 : 0);
	if (fd >= 0)
		(void)close(fd);
	return r;
}

static int send_answer(int socket, uint32_t id, struct answer *answer)
{
	char *text = answer->json == NULL ? NULL : json_dumps(answer->json, JSON_COMPACT | JSON_SORT_KEYS);
	int r;

	if (answer->json != NULL && text == NULL)
		control_refuse(answer, -ENOMEM, "out of memory");
	r = send_text(socket, id, answer, text, text == NULL ? 0 : strlen(text));
	free(text);
	return r;
}

/*
 * Nothing else with descriptors was sent since it asked (R27). Who does not take it has gone, or asked for much without
 * reading: its socket will say so.
 */
static void send_survey(struct survey_question *question, const char *text, size_t bytes)
{
	const struct peer *peer = (const struct peer *)((char *)question - offsetof(struct peer, question));
	struct answer answer = {0};

	if (text == NULL)
		control_refuse(&answer, -ENOMEM, "out of memory");
	(void)send_text(peer->socket, question->id, &answer, text, bytes);
}

/* 1: the request is about what must be counted first, and the question waits. */
static int wait_for_survey(struct manager *manager, struct peer *peer, const json_t *request, uint32_t id)
{
	static const char *const verbs[] = {[SURVEY_STATS] = "stats", [SURVEY_CLIENTS] = "clients", [SURVEY_LAYERS] = "layers"};
	const char *verb = json_string_value(json_object_get(request, "verb"));

	for (size_t kind = 0; verb != NULL && kind < CNRE_COUNT_OF(verbs); kind++) {
		if (strcmp(verb, verbs[kind]) != 0)
			continue;
		peer->question = (struct survey_question){.kind = (enum survey_kind)kind, .id = id, .answer = send_survey};
		survey_ask(manager, &peer->question);
		return 1;
	}
	return 0;
}

static void pause_after(struct manager *manager, int64_t begun_ns)
{
	int64_t now_ns = cnre_clock_now_ns(), pause_ns = (now_ns - begun_ns) * CONTROL_PAUSE_FACTOR;

	manager->control_due_ns = now_ns + (pause_ns < CONTROL_PAUSE_MOST_NS ? pause_ns : CONTROL_PAUSE_MOST_NS);
}

int control_must_wait(const struct manager *manager, int socket)
{
	return cnre_clock_now_ns() < manager->control_due_ns && cnre_wire_next_is(socket, CNRE_WIRE_CONTROL);
}

int control_answer(struct manager *manager, struct peer *peer, const struct cnre_wire_control *request, int fd)
{
	int64_t begun_ns = cnre_clock_now_ns();
	size_t bytes = request->header.bytes - sizeof *request; /* the receiver has checked that it arrived */
	struct answer answer = {0};
	json_t *json = NULL;
	int r = 0;

	if (bytes <= CNRE_WIRE_CONTROL_MAX)
		json = json_loadb(request->text, bytes, JSON_REJECT_DUPLICATES, NULL);
	if (peer->question.link != NULL || cnre_wire_has_unread(peer->socket))
		control_refuse(&answer, -EAGAIN, "the answer before was not read yet: read it, then ask again");
	else if (!json_is_object(json))
		control_refuse(&answer, -EINVAL, "the request is not a JSON object");
	else if (wait_for_survey(manager, peer, json, request->header.id))
		goto asked;
	else
		answer_verb(manager, peer, json, &fd, &answer);
	r = send_answer(peer->socket, request->header.id, &answer);
asked:
	json_decref(answer.json);
	json_decref(json);
	if (fd >= 0)
		(void)close(fd);
	pause_after(manager, begun_ns);
	return r;
}
