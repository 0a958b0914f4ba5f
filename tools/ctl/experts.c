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

/*
 * What is resident shows how hot it is; what is not, whether it should be. `heat` is a digit of base 36: binary digits of uses,
 * and of those with a device (else '.') the letter of that number, which no digit is.
 */
static char sign_of(char state, char heat, char device)
{
	int digits = heat <= '9' ? heat - '0' : heat - 'a' + 10;

	if (device != '.')
		return (char)('A' + (digits < 0 ? 0 : digits > 25 ? 25 : digits));
	if (state == 'l')
		return '*';
	if (state == 'r')
		return heat;
	return heat == '0' ? '.' : heat < '4' ? '-' : '!';
}

/* Without GPUs the layers have no such string. */
static const char *devices_of(const json_t *layer)
{
	return json_string_value(json_object_get(layer, "vram"));
}

static void print_map(FILE *out, struct fields *fields, const json_t *layer, int margin)
{
	const char *state = fields_string(fields, layer, "state"), *heat = fields_string(fields, layer, "heat");
	const char *device = devices_of(layer);
	size_t count = strlen(state);

	if (strlen(heat) != count)
		fields->missing = "heat";
	else if (device != NULL && strlen(device) != count)
		fields->missing = "vram";
	for (size_t i = 0; fields->missing == NULL && i < count; i++) {
		if (i % MAP_COLUMNS == 0 && i > 0)
			fprintf(out, "\n%*s", margin, "");
		fputc(sign_of(state[i], heat[i], device == NULL ? '.' : device[i]), out);
	}
}

static int has_gpus(const json_t *layers)
{
	const json_t *layer;
	size_t i;

	json_array_foreach (layers, i, layer)
		if (devices_of(layer) != NULL)
			return 1;
	return 0;
}

static void print_in_vram(FILE *out, const char *device)
{
	size_t count = 0;

	for (size_t i = 0; device != NULL && device[i] != '\0'; i++)
		count += device[i] != '.';
	if (device == NULL)
		fprintf(out, " %8s", "?");
	else
		fprintf(out, " %8zu", count);
}

static void print_layers(FILE *out, struct fields *fields, const json_t *answer)
{
	const json_t *layers = fields_array(fields, answer, "layers"), *layer;
	int vram = has_gpus(layers);
	size_t i;

	fprintf(out, "%5s %8s%s %8s  EXPERTS\n", "LAYER", "RESIDENT", vram ? "     VRAM" : "", "OF");
	json_array_foreach (layers, i, layer) {
		fprintf(out, "%5" PRIu64 " %8" PRIu64, fields_number(fields, layer, "layer"), fields_number(fields, layer, "resident"));
		if (vram)
			print_in_vram(out, devices_of(layer));
		fprintf(out, " %8" PRIu64 "  ", fields_number(fields, layer, "experts"));
		if (json_object_get(layer, "state") != NULL)
			print_map(out, fields, layer, vram ? 33 : 24);
		else
			fprintf(out, "ask for this layer: experts %" PRIu64, fields_number(fields, layer, "layer"));
		fputc('\n', out);
	}
	fprintf(out, "\nresident: binary digits of its uses, to the base 36; * arrives; not resident: . never used, - used, "
		     "! used 8 times or more\n");
	if (vram)
		fprintf(out, "in VRAM, whether or not resident: A never used, B once, C up to 3 times, and so on\n");
}

static const char *state_name(const char *state)
{
	return strcmp(state, "r") == 0 ? "ready" : strcmp(state, "l") == 0 ? "loading" : strcmp(state, "e") == 0 ? "evicting" : "-";
}

static int any_in_vram(const json_t *experts)
{
	const json_t *expert;
	size_t i;

	json_array_foreach (experts, i, expert)
		if (json_is_integer(json_object_get(expert, "device")))
			return 1;
	return 0;
}

/* The last column, and only where there is something in it. */
static void print_device(FILE *out, struct fields *fields, const json_t *expert)
{
	if (json_is_integer(json_object_get(expert, "device")))
		fprintf(out, "     GPU %" PRIu64, fields_number(fields, expert, "device"));
	else
		fprintf(out, "     -");
}

static void print_experts(FILE *out, struct fields *fields, const json_t *answer)
{
	const json_t *experts = fields_array(fields, answer, "experts"), *expert;
	int vram = any_in_vram(experts);
	size_t i;

	fprintf(out, "%6s  %-9s %13s %12s %10s  LEASED%s\n", "EXPERT", "STATE", "USES", "WORTH", "BYTES", vram ? "  VRAM" : "");
	json_array_foreach (experts, i, expert) {
		const json_t *leased = json_object_get(expert, "leased");
		char text[2][FORMAT_BYTES];

		fprintf(out, "%6" PRIu64 "  %-9s %13s %12.4g %10s  %-*s", fields_number(fields, expert, "expert"),
			state_name(fields_string(fields, expert, "state")),
			format_count(fields_number(fields, expert, "uses"), text[0]), fields_real(fields, expert, "worth"),
			format_bytes(fields_number(fields, expert, "bytes"), text[1]), vram ? 3 : 1,
			json_is_true(leased) ? "yes" : json_is_false(leased) ? "-" : "?");
		if (vram)
			print_device(out, fields, expert);
		fputc('\n', out);
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
