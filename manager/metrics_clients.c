/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients by name: the first METRICS_CLIENTS_MAX names that come have a place each, for as long as the manager lives, and all
 * others share one, so whoever invents names makes no more series. What sessions did that ended stays with their name: their
 * counters never fall, and all clients together are exactly what `cnrectl stats` shows.
 */
#include "manager/metrics_inner.h"

#include <string.h>

/* A name is any bytes of a client. */
static void clean_name(const char name[CNRE_NAME_BYTES], char ret_name[CNRE_NAME_BYTES])
{
	size_t i;

	for (i = 0; i + 1 < CNRE_NAME_BYTES && name[i] != '\0'; i++)
		ret_name[i] = (unsigned char)name[i] < 0x20 || (unsigned char)name[i] >= 0x7f ? '?' : name[i];
	ret_name[i] = '\0';
}

/* METRICS_CLIENTS_MAX: that of all others. */
static uint32_t place_of(struct metrics *metrics, const char *session_name)
{
	char name[CNRE_NAME_BYTES];

	clean_name(session_name, name);
	for (uint32_t i = 0; i < metrics->client_count; i++)
		if (strcmp(metrics->ended[i].name, name) == 0)
			return i;
	if (metrics->client_count == METRICS_CLIENTS_MAX || strcmp(name, METRICS_OTHER) == 0)
		return METRICS_CLIENTS_MAX;
	memcpy(metrics->ended[metrics->client_count].name, name, sizeof name);
	return metrics->client_count++;
}

static void add_totals(struct metrics_client *client, const struct session_totals *totals)
{
	client->accesses += totals->accesses;
	client->hits += totals->accesses - totals->misses;
	client->misses += totals->misses;
	client->joins += totals->joins;
	client->failures += totals->failures;
	client->wait_ns += totals->wait_ns;
	client->bytes_looked_up += totals->bytes;
}

void metrics_session_ended(struct manager *manager, const struct session *session, const struct session_totals *totals)
{
	struct metrics *metrics = manager->metrics;
	uint32_t place = metrics == NULL ? METRICS_CLIENTS_MAX : place_of(metrics, session->name);

	if (place < METRICS_CLIENTS_MAX) /* what the others did is the rest */
		add_totals(&metrics->ended[place], totals);
}

/* Of all that ended, also under former managers, what no name has. */
static void take_rest(const struct manager *manager, struct metrics_client *rest)
{
	struct metrics_client named = {.sessions = 0};
	const struct metrics *metrics = manager->metrics;

	for (uint32_t i = 0; i < metrics->client_count; i++) {
		named.accesses += metrics->ended[i].accesses;
		named.hits += metrics->ended[i].hits;
		named.misses += metrics->ended[i].misses;
		named.joins += metrics->ended[i].joins;
		named.failures += metrics->ended[i].failures;
		named.wait_ns += metrics->ended[i].wait_ns;
		named.bytes_looked_up += metrics->ended[i].bytes_looked_up;
	}
	*rest = (struct metrics_client){.name = METRICS_OTHER};
	add_totals(rest, &manager->sessions->retired);
	rest->accesses -= named.accesses;
	rest->hits -= named.hits;
	rest->misses -= named.misses;
	rest->joins -= named.joins;
	rest->failures -= named.failures;
	rest->wait_ns -= named.wait_ns;
	rest->bytes_looked_up -= named.bytes_looked_up;
}

void metrics_survey_begins(struct manager *manager)
{
	struct metrics *metrics = manager->metrics;

	memcpy(metrics->snapshot.client, metrics->ended, sizeof metrics->ended);
	take_rest(manager, &metrics->snapshot.client[METRICS_CLIENTS_MAX]);
}

/* The rest stands behind the names, of which some may be new since the survey began. */
void metrics_close_clients(struct metrics *metrics)
{
	struct metrics_snapshot *snapshot = &metrics->snapshot;

	for (uint32_t i = 0; i < metrics->client_count; i++)
		memcpy(snapshot->client[i].name, metrics->ended[i].name, sizeof snapshot->client[i].name);
	snapshot->client[metrics->client_count] = snapshot->client[METRICS_CLIENTS_MAX];
	snapshot->client_count = metrics->client_count + 1;
}

void metrics_take_session(struct manager *manager, const struct session *session, const struct session_count *count)
{
	struct metrics *metrics = manager->metrics;
	uint32_t place = place_of(metrics, session->name);
	struct metrics_client *client = &metrics->snapshot.client[place];

	client->sessions++;
	client->leased += count->leased;
	add_totals(client, &count->totals);
}
