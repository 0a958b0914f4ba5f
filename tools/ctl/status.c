/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl status: is it well, what does it serve, how much memory has it and why that much. Trouble stands first. */
#include "tools/ctl/verb.h"

#include "tools/ctl/format.h"

#include <inttypes.h>
#include <string.h>

static void print_manager(FILE *out, struct fields *fields, const json_t *status)
{
	char uptime[FORMAT_BYTES];

	fprintf(out, "manager    %s, pid %" PRIu64 ", up %s, %" PRIu64 " clients, policy %s\n",
		fields_string(fields, status, "version"), fields_number(fields, status, "pid"),
		format_seconds(fields_real(fields, status, "uptime_s"), uptime),
		fields_number(fields, status, "clients"), fields_string(fields, status, "policy"));
	fprintf(out, "           %s, epoch %" PRIu64 ", bell %s\n", fields_string(fields, status, "socket"),
		fields_number(fields, status, "epoch"), fields_string(fields, status, "bell"));
}

static void print_degraded(FILE *out, struct fields *fields, const json_t *status)
{
	const json_t *degraded = fields_array(fields, status, "degraded");
	const json_t *item;
	size_t index;

	if (json_array_size(degraded) == 0)
		fprintf(out, "health     good\n");
	json_array_foreach (degraded, index, item)
		fprintf(out, "DEGRADED   %s\n       do  %s\n", fields_string(fields, item, "what"),
			fields_string(fields, item, "do"));
}

/* Shards of one model may lie on several drives. */
static void print_directories(FILE *out, struct fields *fields, const json_t *model)
{
	const json_t *directories = fields_array(fields, model, "directories");
	const json_t *item;
	size_t index;

	if (json_array_size(directories) == 1)
		fprintf(out, "           %s\n", fields_string(fields, model, "directory"));
	else
		json_array_foreach (directories, index, item)
			fprintf(out, "           %s: %" PRIu64 " shards\n", fields_string(fields, item, "directory"),
				fields_number(fields, item, "shards"));
}

/* Experts in another layout than the checkpoint's have memory of their own. */
static void print_view(FILE *out, struct fields *fields, const json_t *model)
{
	const json_t *view = json_object_get(model, "view");

	if (json_is_object(view))
		fprintf(out, "           prepared as %s, version %" PRIu64 ", from %s\n", fields_string(fields, view, "name"),
			fields_number(fields, view, "version"), fields_string(fields, view, "checkpoint"));
}

static void print_model(FILE *out, struct fields *fields, const json_t *model)
{
	uint64_t resident = fields_number(fields, model, "resident_objects");
	uint64_t objects = fields_number(fields, model, "objects");
	char text[6][FORMAT_BYTES];

	fprintf(out, "model      %s: %s, %" PRIu64 " layers, %" PRIu64 " experts, top %" PRIu64 "\n",
		fields_string(fields, model, "name"), fields_string(fields, model, "family"),
		fields_number(fields, model, "layers"), fields_number(fields, model, "experts"),
		fields_number(fields, model, "top_k"));
	print_directories(out, fields, model);
	print_view(out, fields, model);
	fprintf(out, "           %s of %s experts resident (%s) in %s; all are %s, the largest slab %s\n",
		format_count(resident, text[0]), format_count(objects, text[1]),
		format_share(resident, objects, text[2]),
		format_bytes(fields_number(fields, model, "resident_bytes"), text[5]),
		format_bytes(fields_number(fields, model, "payload_bytes_total"), text[3]),
		format_bytes(fields_number(fields, model, "slab_bytes_max"), text[4]));
	fprintf(out, "           identity %.16s\n", fields_string(fields, model, "identity"));
}

/* How much of the experts can be read from elsewhere, too, and what cannot and why. */
static void print_mirror(FILE *out, struct fields *fields, const json_t *mirror)
{
	uint64_t bytes = fields_number(fields, mirror, "expert_bytes"), of = fields_number(fields, mirror, "expert_bytes_of");
	const json_t *refusals = fields_array(fields, mirror, "refusals");
	const char *fault = fields_string(fields, mirror, "fault");
	char text[3][FORMAT_BYTES];
	const json_t *item;
	size_t index;

	fprintf(out, "mirror     %s: %s%s%s\n", fields_string(fields, mirror, "directory"),
		fields_string(fields, mirror, "state"), fault[0] != '\0' ? ": " : "", fault);
	fprintf(out,
		"           %s of %s of experts (%s) in %" PRIu64 " of %" PRIu64 " shards; %" PRIu64 " refused, %" PRIu64
		" not there, %" PRIu64 " to be checked\n",
		format_bytes(bytes, text[0]), format_bytes(of, text[1]), format_share(bytes, of, text[2]),
		fields_number(fields, mirror, "used"), fields_number(fields, mirror, "shards"),
		fields_number(fields, mirror, "refused"), fields_number(fields, mirror, "absent"),
		fields_number(fields, mirror, "waiting"));
	json_array_foreach (refusals, index, item)
		fprintf(out, "           refused: %s\n       do  %s\n", fields_string(fields, item, "what"),
			fields_string(fields, item, "do"));
}

static void print_mirrors(FILE *out, struct fields *fields, const json_t *status)
{
	const json_t *mirrors = fields_array(fields, status, "mirrors");
	const json_t *mirror;
	size_t index;

	json_array_foreach (mirrors, index, mirror)
		print_mirror(out, fields, mirror);
}

/* Every limit that was looked at; the one that binds is marked, with what would raise it. */
static void print_budget(FILE *out, struct fields *fields, const json_t *budget)
{
	const json_t *terms = fields_array(fields, budget, "terms");
	const char *binding = fields_string(fields, budget, "binding");
	const json_t *term;
	char text[FORMAT_BYTES];
	size_t index;

	fprintf(out, "budget     %s\n", format_bytes(fields_number(fields, budget, "bytes"), text));
	json_array_foreach (terms, index, term) {
		const char *source = fields_string(fields, term, "source");
		const char *remedy = fields_string(fields, term, "do");
		int binds = strcmp(source, binding) == 0;

		fprintf(out, "         %s %10s  %s\n", binds ? ">" : " ",
			format_bytes(fields_number(fields, term, "bytes"), text), source);
		if (binds && remedy[0] != '\0')
			fprintf(out, "                       for more: %s\n", remedy);
	}
}

static void print_backing(FILE *out, struct fields *fields, const json_t *pool)
{
	json_t *backing = (json_t *)fields_object(fields, pool, "backing"); /* the macro wants it writable */
	const char *separator = "";
	char text[FORMAT_BYTES];
	const char *name;
	json_t *value;

	fprintf(out, "           pages: ");
	json_object_foreach (backing, name, value) {
		uint64_t bytes = fields_number(fields, backing, name);

		if (bytes == 0)
			continue;
		fprintf(out, "%s%s %s", separator, name, format_bytes(bytes, text));
		separator = ", ";
	}
	fputc('\n', out);
}

static void print_pool(FILE *out, struct fields *fields, const json_t *pool)
{
	uint64_t backed_bytes = fields_number(fields, pool, "backed_bytes");
	uint64_t used_bytes = fields_number(fields, pool, "used_bytes");
	uint64_t quarantined = fields_number(fields, pool, "quarantined");
	char text[3][FORMAT_BYTES];

	fprintf(out, "pool       %s used of %s (%s); %" PRIu64 " of %" PRIu64 " guaranteed slabs reserved by clients\n",
		format_bytes(used_bytes, text[0]), format_bytes(backed_bytes, text[1]),
		format_share(used_bytes, backed_bytes, text[2]), fields_number(fields, pool, "reserved_slabs"),
		fields_number(fields, pool, "guaranteed"));
	if (quarantined > 0)
		fprintf(out,
			"           %" PRIu64 " slabs in quarantine: reads of a killed manager may still land there\n",
			quarantined);
	print_backing(out, fields, pool);
}

static void print_loader(FILE *out, struct fields *fields, const json_t *loader)
{
	const char *reason = fields_string(fields, loader, "reason"); /* why not the better engine; empty: it is that */
	char text[FORMAT_BYTES];

	fprintf(out, "loader     %s%s%s%s%s\n", fields_string(fields, loader, "engine"), reason[0] != '\0' ? ": " : "",
		reason, fields_boolean(fields, loader, "registered_buffers") ? ", registered buffers" : "",
		fields_boolean(fields, loader, "registered_files") ? ", registered files" : "");
	fprintf(out,
		"           files: %" PRIu64 " direct, %" PRIu64 " through the page cache; reads: %" PRIu64
		" in flight of %" PRIu64 ", %" PRIu64 " queued; chunks of %s, %" PRIu64 " deep\n",
		fields_number(fields, loader, "files_direct"), fields_number(fields, loader, "files_buffered"),
		fields_number(fields, loader, "in_flight"), fields_number(fields, loader, "reads_in_flight_max"),
		fields_number(fields, loader, "queued"),
		format_bytes(fields_number(fields, loader, "chunk_bytes"), text),
		fields_number(fields, loader, "chunk_depth"));
}

/* Without a watch the manager learns of short memory only from OOM kills, when it is too late for somebody. */
static void print_pressure(FILE *out, struct fields *fields, const json_t *pressure)
{
	if (json_is_string(json_object_get(pressure, "watch")))
		fprintf(out, "pressure   watched: %s\n", fields_string(fields, pressure, "watch"));
	else
		fprintf(out, "pressure   not watched: %s\n       do  %s\n", fields_string(fields, pressure, "reason"),
			fields_string(fields, pressure, "do"));
}

static void print_kv_files(FILE *out, struct fields *fields, const json_t *disk)
{
	char files[FORMAT_BYTES], bytes[FORMAT_BYTES];

	fprintf(out, "%s files (%s) in %s\n", format_count(fields_number(fields, disk, "files"), files),
		format_bytes(fields_number(fields, disk, "bytes"), bytes), fields_string(fields, disk, "directory"));
}

/* The store of prefixes in a line; cnrectl kv has the rest. */
static void print_kv(FILE *out, struct fields *fields, const json_t *kv)
{
	const json_t *disk = json_object_get(kv, "disk");
	char resident[FORMAT_BYTES], budget[FORMAT_BYTES];

	if (!fields_boolean(fields, kv, "enabled")) {
		fprintf(out, "kv         none: with --kv-ram SIZE prefixes of conversations are kept\n");
		return;
	}
	fprintf(out, "kv         %s resident of %s, %" PRIu64 " namespaces; ",
		format_bytes(fields_number(fields, kv, "resident_bytes"), resident),
		format_bytes(fields_number(fields, kv, "budget_bytes"), budget), fields_number(fields, kv, "namespaces"));
	if (json_is_null(disk))
		fprintf(out, "no files\n");
	else
		print_kv_files(out, fields, fields_object(fields, kv, "disk"));
}

static void print_gpu(FILE *out, struct fields *fields, const json_t *device)
{
	char charged[FORMAT_BYTES], budget[FORMAT_BYTES], experts[FORMAT_BYTES];

	fprintf(out, "vram       %s: %s, %s of %s, %s experts, %zu clients\n", fields_string(fields, device, "uuid"),
		fields_string(fields, device, "state"), format_bytes(fields_number(fields, device, "charged_bytes"), charged),
		format_bytes(fields_number(fields, device, "budget_bytes"), budget),
		format_count(fields_number(fields, device, "experts"), experts), json_array_size(fields_array(fields, device, "clients")));
}

/* Only where GPUs were asked for. */
static void print_vram(FILE *out, struct fields *fields, const json_t *status)
{
	const json_t *vram = json_object_get(status, "vram"), *devices = json_object_get(vram, "devices"), *device;
	const char *reason = json_string_value(json_object_get(vram, "reason"));
	const char *state = json_string_value(json_object_get(vram, "state"));
	size_t index;

	if (state != NULL && strcmp(state, "none") == 0)
		fprintf(out, "vram       none: %s\n", reason == NULL ? "" : reason);
	json_array_foreach (devices, index, device)
		print_gpu(out, fields, device);
}

/* Only where there is something to tell. */
static void print_warm(FILE *out, struct fields *fields, const json_t *status)
{
	const json_t *warm = json_object_get(status, "warm");
	const char *state = json_string_value(json_object_get(warm, "state"));

	if (state != NULL && strcmp(state, "none") != 0)
		warm_print(out, fields, warm);
}

/* Variables of Colibri's engines that are set: who set them must see whether they count. */
static void print_colibri(FILE *out, struct fields *fields, const json_t *status)
{
	const json_t *list = json_object_get(status, "colibri"), *item;
	const char *label = "colibri";
	size_t index;

	json_array_foreach (list, index, item) {
		fprintf(out, "%-10s %s %s\n", label, fields_string(fields, item, "name"), fields_string(fields, item, "what"));
		label = "";
	}
}

static void print_settings(FILE *out, struct fields *fields, const json_t *status)
{
	const json_t *settings = fields_array(fields, status, "settings");
	const char *label = "settings";
	const json_t *setting;
	size_t index;

	json_array_foreach (settings, index, setting) {
		const char *value = fields_string(fields, setting, "value"), *now = fields_string(fields, setting, "in_force");

		fprintf(out, "%-10s %-15s %s  (%s)", label, fields_string(fields, setting, "name"), value,
			fields_string(fields, setting, "source"));
		if (strcmp(value, now) != 0)
			fprintf(out, "; in force: %s  (%s)", now, fields_string(fields, setting, "by"));
		fputc('\n', out);
		label = "";
	}
}

static void print(FILE *out, struct fields *fields, const json_t *status)
{
	const json_t *models = fields_array(fields, status, "models");
	const json_t *model;
	size_t index;

	print_manager(out, fields, status);
	print_degraded(out, fields, status);
	json_array_foreach (models, index, model)
		print_model(out, fields, model);
	print_mirrors(out, fields, status);
	print_budget(out, fields, fields_object(fields, status, "budget"));
	print_pool(out, fields, fields_object(fields, status, "pool"));
	print_loader(out, fields, fields_object(fields, status, "loader"));
	print_pressure(out, fields, fields_object(fields, status, "pressure"));
	print_kv(out, fields, fields_object(fields, status, "kv"));
	print_vram(out, fields, status);
	print_warm(out, fields, status);
	print_colibri(out, fields, status);
	print_settings(out, fields, status);
}

const struct verb verb_status = {
	.name = "status",
	.arguments = "",
	.summary = "health, models, memory budget and what binds it, loader, prefixes, GPUs, settings",
	.request = verb_request_bare,
	.print = print,
};
