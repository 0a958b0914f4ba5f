/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl why LAYER EXPERT: why an expert is resident, or is not, in words, and the numbers behind them. */
#include "tools/ctl/format.h"
#include "tools/ctl/place.h"
#include "tools/ctl/verb.h"
#include "tools/ctl/why_words.h"

#include <errno.h>
#include <inttypes.h>

static int request(int argc, char *const *argv, json_t **ret_request, char message[CTL_MESSAGE_BYTES])
{
	static const char *const keys[] = {"layer", "expert"};
	json_t *made = NULL;
	int r = place_request(argc, argv, keys, 2, &made, message);

	if (r < 0)
		return r;
	if (r != 2) {
		json_decref(made);
		(void)snprintf(message, CTL_MESSAGE_BYTES, "needs a layer and an expert: why LAYER EXPERT [--model NAME]");
		return -EINVAL;
	}
	*ret_request = made;
	return 0;
}

static void print_holders(FILE *out, struct fields *fields, const json_t *answer)
{
	const json_t *holders = fields_array(fields, answer, "holders"), *holder;
	uint64_t count = fields_number(fields, answer, "holder_count");
	size_t i;

	fprintf(out, "held       %s\n", count == 0 ? "by nobody" : "");
	json_array_foreach (holders, i, holder)
		fprintf(out, "           by %s (process %" PRIu64 ", session %" PRIu64 "): %" PRIu64 " leases\n",
			fields_string(fields, holder, "name"), fields_number(fields, holder, "pid"),
			fields_number(fields, holder, "session"), fields_number(fields, holder, "leases"));
	if (count > json_array_size(holders))
		fprintf(out, "           and by %" PRIu64 " more\n", count - json_array_size(holders));
}

static void print_last_load(FILE *out, struct fields *fields, const json_t *load)
{
	const json_t *error = json_object_get(load, "error");
	uint64_t attempts;
	char text[3][FORMAT_BYTES];

	if (json_is_null(load)) {
		fprintf(out, "last load  none since this manager started\n");
		return;
	}
	attempts = fields_number(fields, load, "failed_attempts");
	fprintf(out, "last load  %s ago: %s from drive %s in %s", format_seconds(fields_real(fields, load, "ended_s_ago"), text[0]),
		format_bytes(fields_number(fields, load, "read_bytes"), text[1]), fields_string(fields, load, "drive"),
		format_seconds(fields_real(fields, load, "service_s"), text[2]));
	if (attempts > 0)
		fprintf(out, ", after %" PRIu64 " attempts that came to nothing", attempts);
	if (json_is_string(error))
		fprintf(out, "; it failed: %s", json_string_value(error));
	fputc('\n', out);
}

static void print_policy(FILE *out, struct fields *fields, const json_t *policy)
{
	const json_t *facts = fields_object(fields, policy, "facts"), *rival = json_object_get(policy, "rival"), *fact;
	const char *name;

	fprintf(out, "policy     %s: worth %.6g\n", fields_string(fields, policy, "name"), fields_real(fields, policy, "worth"));
	json_object_foreach ((json_t *)facts, name, fact)
		fprintf(out, "           %-16s %.6g\n", name, json_number_value(fact));
	if (json_is_object(rival))
		fprintf(out, "rival      layer %" PRIu64 " expert %" PRIu64 ": worth %.6g, %" PRIu64 " uses\n",
			fields_number(fields, rival, "layer"), fields_number(fields, rival, "expert"),
			fields_real(fields, rival, "worth"), fields_number(fields, rival, "uses"));
}

/* Only where there are GPUs. */
static void print_vram(FILE *out, struct fields *fields, const json_t *vram)
{
	const json_t *facts, *fact;
	const char *name;

	if (!json_is_object(vram))
		return;
	fprintf(out, "vram       %s", fields_string(fields, vram, "state"));
	if (json_is_integer(json_object_get(vram, "device")))
		fprintf(out, " on GPU %" PRIu64 ", %zu clients hold it there", fields_number(fields, vram, "device"),
			json_array_size(fields_array(fields, vram, "holders")));
	fputc('\n', out);
	facts = fields_object(fields, vram, "facts");
	json_object_foreach ((json_t *)facts, name, fact)
		fprintf(out, "           %-16s %.6g\n", name, json_number_value(fact));
}

static void print(FILE *out, struct fields *fields, const json_t *answer)
{
	char text[3][FORMAT_BYTES], words[WHY_WORDS_BYTES];

	fprintf(out, "%s, layer %" PRIu64 ", expert %" PRIu64 ": %s\n", fields_string(fields, answer, "model"),
		fields_number(fields, answer, "layer"), fields_number(fields, answer, "expert"),
		fields_string(fields, answer, "state"));
	fprintf(out, "why        %s\n", why_words(fields, answer, words));
	fprintf(out, "bytes      %s in memory, of which %s are its payload\n",
		format_bytes(fields_number(fields, answer, "slab_bytes"), text[0]),
		format_bytes(fields_number(fields, answer, "payload_bytes"), text[1]));
	fprintf(out, "uses       %s in all; loaded %" PRIu64 " times, evicted or failed %" PRIu64 " times\n",
		format_count(fields_number(fields, answer, "uses"), text[2]), fields_number(fields, answer, "loads"),
		fields_number(fields, answer, "lost"));
	print_last_load(out, fields, json_object_get(answer, "last_load"));
	print_holders(out, fields, answer);
	print_policy(out, fields, fields_object(fields, answer, "policy"));
	print_vram(out, fields, json_object_get(answer, "vram"));
}

const struct verb verb_why = {
	.name = "why",
	.arguments = "LAYER EXPERT [--model NAME]",
	.summary = "why an expert is resident, or is not",
	.request = request,
	.takes_option = place_takes_option,
	.print = print,
};
