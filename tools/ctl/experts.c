/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl experts: which experts are resident and how much each is used, of all layers or of one. */
#include "tools/ctl/format.h"
#include "tools/ctl/place.h"
#include "tools/ctl/verb.h"

#include <inttypes.h>
#include <string.h>

#define MAP_COLUMNS 64u

static int request(int argc, char *const *argv, json_t **ret_request, char message[CTL_MESSAGE_BYTES])
{
	static const char *const keys[] = {"layer"};
	int r = place_request(argc, argv, keys, 1, ret_request, message);

	return r < 0 ? r : 0;
}

/* What is resident shows how hot it is; what is not, whether it should be. `heat` is a digit of base 36: binary digits of uses. */
static char sign_of(char state, char heat)
{
	if (state == 'l')
		return '*';
	if (state == 'r')
		return heat;
	return heat == '0' ? '.' : heat < '4' ? '-' : '!';
}

static void print_map(FILE *out, struct fields *fields, const json_t *layer)
{
	const char *state = fields_string(fields, layer, "state"), *heat = fields_string(fields, layer, "heat");
	size_t count = strlen(state);

	if (strlen(heat) != count)
		fields->missing = "heat";
	for (size_t i = 0; fields->missing == NULL && i < count; i++) {
		if (i % MAP_COLUMNS == 0 && i > 0)
			fprintf(out, "\n%24s", "");
		fputc(sign_of(state[i], heat[i]), out);
	}
}

static void print_layers(FILE *out, struct fields *fields, const json_t *answer)
{
	const json_t *layer;
	size_t i;

	fprintf(out, "%5s %8s %8s  EXPERTS\n", "LAYER", "RESIDENT", "OF");
	json_array_foreach (fields_array(fields, answer, "layers"), i, layer) {
		fprintf(out, "%5" PRIu64 " %8" PRIu64 " %8" PRIu64 "  ", fields_number(fields, layer, "layer"),
			fields_number(fields, layer, "resident"), fields_number(fields, layer, "experts"));
		if (json_object_get(layer, "state") != NULL)
			print_map(out, fields, layer);
		else
			fprintf(out, "ask for this layer: experts %" PRIu64, fields_number(fields, layer, "layer"));
		fputc('\n', out);
	}
	fprintf(out, "\nresident: binary digits of its uses, to the base 36; * arrives; not resident: . never used, - used, "
		     "! used 8 times or more\n");
}

static const char *state_name(const char *state)
{
	return strcmp(state, "r") == 0 ? "ready" : strcmp(state, "l") == 0 ? "loading" : strcmp(state, "e") == 0 ? "evicting" : "-";
}

static void print_experts(FILE *out, struct fields *fields, const json_t *answer)
{
	const json_t *expert;
	size_t i;

	fprintf(out, "%6s  %-9s %13s %12s %10s  LEASED\n", "EXPERT", "STATE", "USES", "WORTH", "BYTES");
	json_array_foreach (fields_array(fields, answer, "experts"), i, expert) {
		const json_t *leased = json_object_get(expert, "leased");
		char text[2][FORMAT_BYTES];

		fprintf(out, "%6" PRIu64 "  %-9s %13s %12.4g %10s  %s\n", fields_number(fields, expert, "expert"),
			state_name(fields_string(fields, expert, "state")),
			format_count(fields_number(fields, expert, "uses"), text[0]), fields_real(fields, expert, "worth"),
			format_bytes(fields_number(fields, expert, "bytes"), text[1]),
			json_is_true(leased) ? "yes" : json_is_false(leased) ? "-" : "?");
	}
	if (fields_boolean(fields, answer, "truncated"))
		fprintf(out, "the layer has more experts than one answer holds\n");
}

static void print(FILE *out, struct fields *fields, const json_t *answer)
{
	fprintf(out, "%s, policy %s\n\n", fields_string(fields, answer, "model"), fields_string(fields, answer, "policy"));
	if (json_object_get(answer, "layers") != NULL)
		print_layers(out, fields, answer);
	else
		print_experts(out, fields, answer);
}

const struct verb verb_experts = {
	.name = "experts",
	.arguments = "[LAYER] [--model NAME]",
	.summary = "which experts are resident, and how much each is used",
	.request = request,
	.takes_option = place_takes_option,
	.print = print,
};
