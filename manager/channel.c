/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything read here was written by a client: each word is loaded once, checked, and used from the copy. What is out
 * of range is counted and ignored; it costs its writer a wait slice and nobody else anything.
 */
#include "manager/channel.h"

#include "base/clock.h"
#include "manager/feed.h"
#include "manager/residency.h"
#include "manager/session.h"
#include "shm/ledger.h"
#include "shm/word.h"

static void count_invalid(struct session *session)
{
	cnre_counter_add(&session->manager->counters->requests_invalid, 1);
}

static void follow_entry(struct session *session, uint64_t entry)
{
	const struct model_catalog *catalog = session->model->catalog;
	uint32_t value = cnre_log_value(entry);

	switch (cnre_log_kind_of(entry)) {
	case CNRE_LOG_VISIT:
		if (value < catalog->layer_count)
			feed_visit(session->manager, session, value, cnre_log_argument(entry));
		else
			count_invalid(session);
		break;
	case CNRE_LOG_ACCESS:
		if (value < catalog->object_count)
			feed_access(session->manager, session, value, cnre_log_argument(entry) != 0);
		else
			count_invalid(session);
		break;
	case CNRE_LOG_TOKEN_END:
		feed_token_end(session->manager, session, value);
		break;
	default:
		count_invalid(session);
	}
}

/* How many words there were. */
static uint32_t follow_log(struct session *session)
{
	const _Atomic uint64_t *log = cnre_access_log_of(session->channel);
	uint64_t lost = session->log_reader.lost_count, entry;
	uint32_t count = 0;

	while (count < CHANNEL_LOG_PER_TURN && cnre_access_log_next(log, &session->log_reader, &entry)) {
		follow_entry(session, entry);
		count++;
	}
	lost = session->log_reader.lost_count - lost;
	if (lost > 0) {
		cnre_counter_add(&session->manager->counters->log_lost, lost);
		feed_lost(session->manager, session, lost);
	}
	return count;
}

void channel_finish(struct session *session)
{
	for (uint32_t turns = 0; turns < CNRE_LOG_ENTRIES / CHANNEL_LOG_PER_TURN; turns++)
		(void)follow_log(session);
}

static void take_request(struct session *session, const struct cnre_request *request)
{
	enum residency_kind kind = request->kind == CNRE_REQUEST_LOAD ? RESIDENCY_DEMAND : RESIDENCY_PREFETCH;

	if (request->kind != CNRE_REQUEST_LOAD && request->kind != CNRE_REQUEST_PREFETCH) {
		count_invalid(session);
		return;
	}
	for (uint32_t i = 0; i < request->count; i++) {
		if (request->object[i] >= session->model->catalog->object_count ||
		    !residency_request(session->manager, session, session->model->first_owner + request->object[i],
				       kind))
			count_invalid(session);
	}
}

/* No slot was free when the client wanted one: its leases say what it waits for (R7). */
void channel_scan_wants(struct session *session)
{
	for (uint32_t i = 0; i < session->model->catalog->object_count; i++)
		if (CNRE_LEDGER_LEASES(cnre_ledger_scan(&session->ledger->word[i])) > 0 &&
		    !residency_request(session->manager, session, session->model->first_owner + i, RESIDENCY_DEMAND))
			break; /* more than the client may wait for */
}

static int serve(struct session *session)
{
	struct cnre_request request;
	uint32_t taken = 0;

	session->manager->log_words += follow_log(session);
	while (taken < CHANNEL_REQUESTS_PER_TURN && cnre_ring_take(session->channel, &session->ring_head, &request)) {
		take_request(session, &request);
		taken++;
	}
	if (cnre_ring_take_want_scan(session->channel)) {
		channel_scan_wants(session);
		taken++;
	}
	return taken > 0;
}

int channel_serve_all(struct manager *manager)
{
	uint64_t log_words = manager->log_words;
	int64_t now_ns = cnre_clock_now_ns();
	int busy = 0;

	for (uint32_t i = 0; i < manager->sessions->active_count; i++)
		busy |= serve(manager->sessions->active[i]);
	if (manager->log_words != log_words)
		manager->log_heard_ns = now_ns;
	manager->log_due_ns = now_ns + (now_ns - manager->log_heard_ns < CHANNEL_LOG_IDLE_NS ? CHANNEL_LOG_EVERY_NS
											     : CHANNEL_LOG_IDLE_NS);
	return busy;
}

int64_t channel_deadline_ns(const struct manager *manager)
{
	return manager->sessions->active_count > 0 ? manager->log_due_ns : CNRE_NEVER;
}

int channel_any_pending(struct manager *manager)
{
	for (uint32_t i = 0; i < manager->sessions->active_count; i++)
		if (cnre_ring_is_pending(manager->sessions->active[i]->channel,
					 manager->sessions->active[i]->ring_head))
			return 1;
	return 0;
}
