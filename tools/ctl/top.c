/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnrectl top: what happens now, in plain text: rates since the look before. Where standard output is a terminal it is shown
 * again and again, as with --watch; what may be more than fits is cut to the busiest. cnre-top(1) has the heat map and keys.
 */
#include "tools/ctl/top_rates.h"

#include "tools/ctl/answer.h"
#include "tools/ctl/format.h"

#include <errno.h>
#include <inttypes.h>

#define FIRST_S 1.0          /* between the first two looks; those that follow are as far apart as the shows */
#define CLIENTS_SHOWN 8u
#define LAYERS_SHOWN 4u
#define DRIVES_SHOWN 3u

/* The look before; one process shows one manager. */
static json_t *before;

static int look(const struct verb_asker *asker, json_t **ret_look, char message[CTL_MESSAGE_BYTES])
{
	static const char *const verbs[] = {"layers", "drives", "clients", "stats"}; /* stats last: its clock is the look's */
	json_t *taken = json_object();

	for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
		char request[32];
		json_t *answer = NULL;
		int r;

		(void)snprintf(request, sizeof request, "{\"verb\":\"%s\"}", verbs[i]);
		r = asker->ask(asker->context, request, &answer, message);
		if (r < 0) {
			json_decref(taken);
			return r;
		}
		answer_make_printable(answer);
		(void)json_object_set_new(taken, verbs[i], answer);
	}
	*ret_look = taken;
	return 0;
}

static int gather(int argc, char *const *argv, const struct verb_asker *asker, json_t **ret_answer,
		  char message[CTL_MESSAGE_BYTES])
{
	struct fields fields = {.missing = NULL};
	json_t *now = NULL;
	int r = 0;

	(void)argc;
	(void)argv;
	if (before == NULL) {
		r = look(asker, &before, message);
		if (r == 0)
			r = asker->pause(asker->context, FIRST_S);
	}
	if (r == 0)
		r = look(asker, &now, message);
	if (r < 0)
		return r;
	*ret_answer = top_rates(&fields, before, now);
	json_decref(before);
	before = now;
	if (fields.missing != NULL) {
		json_decref(*ret_answer);
		(void)snprintf(message, CTL_MESSAGE_BYTES,
			       "an answer has no usable field \"%s\": cnrectl and the manager are of different releases", fields.missing);
		return -EBADMSG;
	}
	if (*ret_answer != NULL)
		return 0;
	(void)snprintf(message, CTL_MESSAGE_BYTES, "the manager was restarted meanwhile: ask again");
	return -EAGAIN;
}

/* ---- for a person ---- */

static void print_summary(FILE *out, struct fields *fields, const json_t *answer)
{
	char text[3][FORMAT_BYTES];

	fprintf(out, "lookups  %10.1f/s  hits %-8s felt %-10s a miss   in %.1f s\n", fields_real(fields, answer, "lookups_s"),
		format_share_of(answer, "hit_share", text[0]), format_seconds_of(answer, "felt_miss_s", text[1]), fields_real(fields, answer, "seconds"));
	fprintf(out, "loads    %10.1f/s  %10.1f MB/s   %s a load   %" PRIu64 " out, %" PRIu64 " queued\n",
		fields_real(fields, answer, "loads_s"), fields_real(fields, answer, "bytes_s") / 1e6,
		format_seconds_of(answer, "service_s", text[0]), fields_number(fields, answer, "loads_in_flight"),
		fields_number(fields, answer, "loads_queued"));
	fprintf(out, "memory   %s of %s, %.1f evictions/s\n", format_bytes(fields_number(fields, answer, "resident_bytes"), text[0]),
		format_bytes(fields_number(fields, answer, "budget_bytes"), text[1]), fields_real(fields, answer, "evictions_s"));
}

static void print_client(FILE *out, struct fields *fields, const json_t *client)
{
	char text[3][FORMAT_BYTES];

	fprintf(out, "%7" PRIu64 " %-16.16s %8" PRIu64 " %10.1f %8s %8s %9s %6" PRIu64 "\n", fields_number(fields, client, "session"),
		fields_string(fields, client, "name"), fields_number(fields, client, "pid"), fields_real(fields, client, "lookups_s"),
		format_share_of(client, "hit_share", text[0]), format_share_of(client, "waiting", text[1]), format_seconds_of(client, "felt_p99_s", text[2]),
		fields_number(fields, client, "leased"));
}

static void print_layer(FILE *out, struct fields *fields, const json_t *layer)
{
	char text[3][FORMAT_BYTES];

	fprintf(out, "%7" PRIu64 " %-16.16s %8" PRIu64 " %10.1f %8s %8s %9s\n", fields_number(fields, layer, "layer"),
		fields_string(fields, layer, "model"), fields_number(fields, layer, "resident"),
		fields_real(fields, layer, "lookups_s"), format_share_of(layer, "hit_share", text[0]), format_share_of(layer, "waiting", text[1]),
		format_seconds_of(layer, "felt_p99_s", text[2]));
}

static void print_drive(FILE *out, struct fields *fields, const json_t *drive)
{
	char text[2][FORMAT_BYTES];

	fprintf(out, "%-12.12s %-8s %9.1f MB/s  %9s a read  %9s p99  %3" PRIu64 " out\n", fields_string(fields, drive, "name"),
		fields_string(fields, drive, "state"), fields_real(fields, drive, "bytes_s") / 1e6,
		format_seconds_of(drive, "read_s", text[0]), format_seconds_of(drive, "read_p99_s", text[1]), fields_number(fields, drive, "in_flight"));
}

static void print_list(FILE *out, struct fields *fields, const json_t *list, size_t most,
		       void (*print_one)(FILE *out, struct fields *fields, const json_t *one))
{
	for (size_t i = 0; i < json_array_size(list) && i < most; i++)
		print_one(out, fields, json_array_get(list, i));
	if (json_array_size(list) > most)
		fprintf(out, "        and %zu more\n", json_array_size(list) - most);
}

static void print(FILE *out, struct fields *fields, const json_t *answer)
{
	print_summary(out, fields, answer);
	fputc('\n', out);
	print_list(out, fields, fields_array(fields, answer, "drives"), DRIVES_SHOWN, print_drive);
	fprintf(out, "\nSESSION NAME                  PID  LOOKUPS/S     HITS  WAITING  FELT P99 LEASED\n");
	print_list(out, fields, fields_array(fields, answer, "clients"), CLIENTS_SHOWN, print_client);
	fprintf(out, "\n  LAYER MODEL            RESIDENT  LOOKUPS/S     HITS  WAITING  FELT P99\n");
	print_list(out, fields, fields_array(fields, answer, "layers"), LAYERS_SHOWN, print_layer);
}

const struct verb verb_top = {
	.name = "top",
	.arguments = "",
	.summary = "what happens now: rates, clients, layers and drives, again and again on a terminal",
	.request = verb_request_bare,
	.gather = gather,
	.watches = 1,
	.print = print,
};
