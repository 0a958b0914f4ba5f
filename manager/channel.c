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

/*
 * Bits that nobody knows say nothing; a hit in VRAM is one only where VRAM was asked for, and by who has a device open: RAM's
 * policy does not hear of it.
 */
static enum feed_served served_by(const struct session *session, uint32_t argument)
{
	if (session->vram_count > 0 &&
	    (argument & (CNRE_LOG_VRAM_WANTED | CNRE_LOG_VRAM_HIT)) == (CNRE_LOG_VRAM_WANTED | CNRE_LOG_VRAM_HIT))
		return FEED_SERVED_BY_VRAM;
	return argument & CNRE_LOG_HIT ? FEED_SERVED_BY_RAM : FEED_SERVED_BY_DRIVE;
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
			feed_access(session->manager, session, value, served_by(session, cnre_log_argument(entry)));
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

static void note_lost(struct session *session, uint64_t lost)
{
	cnre_counter_add(&session->manager->counters->log_lost, lost);
	feed_lost(session->manager, session, lost);
}

/* How many words there were. What was lost was lost before the word that came next. */
static uint32_t follow_log(struct session *session, uint32_t words)
{
	const _Atomic uint64_t *log = cnre_access_log_of(session->channel);
	uint64_t lost = session->log_reader.lost_count, entry;
	uint32_t count = 0;

	while (count < words && cnre_access_log_next(log, &session->log_reader, &entry)) {
		if (session->log_reader.lost_count != lost)
			note_lost(session, session->log_reader.lost_count - lost);
		lost = session->log_reader.lost_count;
		follow_entry(session, entry);
		count++;
	}
	if (session->log_reader.lost_count != lost)
		note_lost(session, session->log_reader.lost_count - lost);
	return count;
}

void channel_finish(struct session *session)
{
	(void)follow_log(session, CNRE_LOG_ENTRIES);
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

/* Of what the turn has left, the part of one of the clients that are left. How many words there were. */
static uint32_t follow_share(struct session *session, uint32_t words_left, uint32_t clients_left)
{
	uint32_t share = words_left / clients_left, count;

	if (share < CHANNEL_LOG_SHARE_MIN)
		share = CHANNEL_LOG_SHARE_MIN;
	count = follow_log(session, share);
	if (count > 0)
		session->heard_ns = cnre_clock_now_ns();
	session->manager->log_has_more |= count == share;
	session->manager->log_words += count;
	return count;
}

static int64_t next_look_ns(const struct manager *manager, int64_t now_ns)
{
	if (manager->log_has_more)
		return now_ns + CHANNEL_LOG_MORE_NS;
	return now_ns + (now_ns - manager->log_heard_ns < CHANNEL_LOG_IDLE_NS ? CHANNEL_LOG_EVERY_NS : CHANNEL_LOG_IDLE_NS);
}

int channel_serve_all(struct manager *manager)
{
	uint32_t clients = manager->sessions->active_count, words_left = CHANNEL_LOG_PER_TURN;
	uint64_t log_words = manager->log_words;
	int64_t now_ns = cnre_clock_now_ns();
	int busy = 0;

	manager->log_has_more = 0;
	for (uint32_t i = 0; i < clients; i++) {
		struct session *session = manager->sessions->active[(manager->log_turn + i) % clients];
		uint32_t count = follow_share(session, words_left, clients - i);

		words_left -= count < words_left ? count : words_left;
		busy |= serve(session); /* after its log: lookups are told before what they need is loaded */
	}
	manager->log_turn++;
	if (manager->log_words != log_words)
		manager->log_heard_ns = now_ns;
	manager->log_due_ns = next_look_ns(manager, now_ns);
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
