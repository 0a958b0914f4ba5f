/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl clients: who is attached, what each holds and how long it has waited. */
#include "tools/ctl/verb.h"

#include "tools/ctl/format.h"

#include <inttypes.h>
#include <string.h>

static void print_client(FILE *out, struct fields *fields, const json_t *client)
{
	uint64_t accesses = fields_number(fields, client, "accesses");
	uint64_t hits = fields_number(fields, client, "hits");
	char counts[4][FORMAT_BYTES], share[FORMAT_BYTES], wait[FORMAT_BYTES], p99[FORMAT_BYTES], heard[FORMAT_BYTES];

	fprintf(out, "%7" PRIu64 "  %-20.31s %8" PRIu64 " %6" PRIu64 "  %-20.40s %-12s %6" PRIu64 " %7" PRIu64,
		fields_number(fields, client, "session"), fields_string(fields, client, "name"),
		fields_number(fields, client, "pid"), fields_number(fields, client, "uid"),
		fields_string(fields, client, "model"), fields_string(fields, client, "state"),
		fields_number(fields, client, "leased"), fields_number(fields, client, "reserve_slabs"));
	fprintf(out, " %13s %8s %11s %11s %8s %12s %10s  %s\n", format_count(accesses, counts[0]),
		format_share(hits, accesses, share), format_count(fields_number(fields, client, "misses"), counts[1]),
		format_count(fields_number(fields, client, "joins"), counts[2]),
		format_count(fields_number(fields, client, "failures"), counts[3]),
		format_seconds(fields_real(fields, client, "felt_wait_s"), wait), format_seconds_of(client, "felt_p99_s", p99),
		format_seconds_of(client, "heard_s", heard));
}

static void print(FILE *out, struct fields *fields, const json_t *answer)
{
	const json_t *clients = fields_array(fields, answer, "clients");
	int disconnected = 0;
	const json_t *client;
	size_t index;

	if (json_array_size(clients) == 0) {
		fprintf(out, "no clients\n");
		return;
	}
	fprintf(out, "SESSION  %-20s %8s %6s  %-20s %-12s %6s %7s %13s %8s %11s %11s %8s %12s %10s  LAST ACCESS\n", "NAME", "PID",
		"UID", "MODEL", "STATE", "LEASED", "RESERVE", "LOOKUPS", "HITS", "MISSES", "JOINS", "FAILED",
		"FELT WAIT", "FELT P99");
	json_array_foreach (clients, index, client) {
		print_client(out, fields, client);
		disconnected += strcmp(fields_string(fields, client, "state"), "disconnected") == 0;
	}
	if (disconnected > 0)
		fprintf(out,
			"%d disconnected: alive without a connection, so what it holds stays held; end the process to "
			"free it\n",
			disconnected);
}

const struct verb verb_clients = {
	.name = "clients",
	.arguments = "",
	.summary = "attached processes: what each holds, its hits and its waits",
	.request = verb_request_bare,
	.print = print,
};
