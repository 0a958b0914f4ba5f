/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot as OpenMetrics text, or in the older format that tools read which do not ask for it; see metrics_snapshot.h.
 * Pure but for /sys, which tells the name of a device. Names follow from shm/counters.def: a counter of bytes_read is
 * cnre_read_bytes_total, one of felt_wait_ns cnre_felt_wait_seconds_total.
 */
#include "manager/metrics_snapshot.h"

#include "base/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#define ROOM_FIRST (64u << 10)
#define NAME_BYTES 96u
#define LINE_BYTES 1024u   /* one piece of a line: the longest are a label's value and a sentence of counters.def */
#define DEVICE_BYTES 256u
#define NS_PER_S UINT64_C(1000000000)

const struct metrics_bound metrics_bounds[METRICS_BUCKETS] = {
	{100000, "0.0001"},    {250000, "0.00025"},   {500000, "0.0005"},   {1000000, "0.001"},
	{2500000, "0.0025"},   {5000000, "0.005"},    {10000000, "0.01"},   {25000000, "0.025"},
	{50000000, "0.05"},    {100000000, "0.1"},    {250000000, "0.25"},  {500000000, "0.5"},
	{1000000000, "1.0"},   {2500000000, "2.5"},   {10000000000, "10.0"}, {30000000000, "30.0"},
};

void metrics_observe(struct metrics_histogram *histogram, int64_t ns)
{
	uint32_t i = 0;

	if (ns < 0)
		ns = 0;
	while (i < METRICS_BUCKETS && ns > metrics_bounds[i].ns)
		i++;
	histogram->bucket[i]++;
	histogram->sum_ns += (uint64_t)ns;
}

/* ---- text that grows ---- */

struct text {
	char *base;
	size_t bytes, room;
	int failed, is_openmetrics;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
	va_list arguments;
	int length;

	if (!text->failed && text->room - text->bytes < LINE_BYTES) {
		size_t room = text->room == 0 ? ROOM_FIRST : 2 * text->room;
		char *base = realloc(text->base, room);

		text->failed = base == NULL;
		text->base = base == NULL ? text->base : base;
		text->room = base == NULL ? text->room : room;
	}
	if (text->failed)
		return;
	va_start(arguments, format);
	length = vsnprintf(text->base + text->bytes, LINE_BYTES, format, arguments);
	va_end(arguments);
	text->bytes += length < 0 ? 0 : (size_t)length < LINE_BYTES ? (size_t)length : LINE_BYTES - 1;
}

/* The bytes of a name are somebody's: what would end the value is escaped, what is not printable ASCII is shown as '?'. */
static void add_label(struct text *text, const char *name, const char *value)
{
	char escaped[2 * METRICS_LABEL_BYTES + 1];
	size_t at = 0;

	for (; *value != '\0' && at + 2 < sizeof escaped; value++) {
		if (*value == '"' || *value == '\\')
			escaped[at++] = '\\';
		escaped[at++] = (unsigned char)*value < 0x20 || (unsigned char)*value >= 0x7f ? '?' : *value;
	}
	escaped[at] = '\0';
	add(text, "%s=\"%s\"", name, escaped);
}

/* What is meant by a family's kind: the type's word in both formats, and what a sample's name ends with. */
enum kind { COUNTER, GAUGE, HISTOGRAM };

static void begin_family(struct text *text, const char *name, enum kind kind, const char *unit, const char *help)
{
	static const char *const types[] = {"counter", "gauge", "histogram"};
	const char *end = kind == COUNTER && !text->is_openmetrics ? "_total" : "";

	add(text, "# TYPE %s%s %s\n", name, end, types[kind]);
	if (unit != NULL && text->is_openmetrics)
		add(text, "# UNIT %s %s\n", name, unit);
	add(text, "# HELP %s%s %s\n", name, end, help);
}

static void add_seconds(struct text *text, uint64_t ns)
{
	add(text, " %" PRIu64 ".%09" PRIu64 "\n", ns / NS_PER_S, ns % NS_PER_S);
}

static void add_number(struct text *text, uint64_t number)
{
	add(text, " %" PRIu64 "\n", number);
}

/* ---- the table of counters ---- */

struct name {
	char text[NAME_BYTES];
	const char *unit; /* NULL: a number of things */
};

/* The unit is the last word of a name, and the base unit. */
static struct name name_of(const struct cnre_counter_description *counter)
{
	struct name name = {.unit = NULL};
	int length = (int)strlen(counter->name);

	if (strncmp(counter->name, "bytes_", 6) == 0) {
		name.unit = "bytes";
		(void)snprintf(name.text, sizeof name.text, "cnre_%s_bytes", counter->name + 6);
	} else if (length > 3 && strcmp(counter->name + length - 3, "_ns") == 0) {
		name.unit = "seconds";
		(void)snprintf(name.text, sizeof name.text, "cnre_%.*s_seconds", length - 3, counter->name);
	} else {
		name.unit = strcmp(counter->unit, "bytes") == 0 ? "bytes" : NULL;
		(void)snprintf(name.text, sizeof name.text, "cnre_%s", counter->name);
	}
	return name;
}

static void write_counters(struct text *text, const struct metrics_snapshot *snapshot)
{
	for (size_t i = 0; i < cnre_counter_count; i++) {
		const struct cnre_counter_description *counter = &cnre_counter_table[i];
		enum kind kind = counter->kind == CNRE_COUNTER_KIND_COUNTER ? COUNTER : GAUGE;
		struct name name = name_of(counter);

		begin_family(text, name.text, kind, name.unit, counter->sentence);
		add(text, "%s%s", name.text, kind == COUNTER ? "_total" : "");
		if (name.unit != NULL && strcmp(name.unit, "seconds") == 0)
			add_seconds(text, snapshot->counter[i]);
		else
			add_number(text, snapshot->counter[i]);
	}
}

/* ---- families with a sample for each record of a table ---- */

struct field {
	const char *name;
	enum kind kind;
	const char *unit; /* "seconds": the field is in nanoseconds */
	size_t offset;    /* of a uint64_t in the record */
	const char *help;
};

struct records {
	const struct metrics_snapshot *snapshot;
	const void *first;
	size_t bytes;     /* of each */
	uint32_t count;
	void (*label)(struct text *text, const struct metrics_snapshot *snapshot, const void *record);
};

static const void *record_at(const struct records *records, uint32_t i)
{
	return (const char *)records->first + i * records->bytes;
}

static void write_field(struct text *text, const struct records *records, const struct field *field)
{
	int is_time = field->unit != NULL && strcmp(field->unit, "seconds") == 0;

	begin_family(text, field->name, field->kind, field->unit, field->help);
	for (uint32_t i = 0; i < records->count; i++) {
		const void *record = record_at(records, i);
		uint64_t value;

		memcpy(&value, (const char *)record + field->offset, sizeof value);
		add(text, "%s%s{", field->name, field->kind == COUNTER ? "_total" : "");
		records->label(text, records->snapshot, record);
		add(text, "}");
		if (is_time)
			add_seconds(text, value);
		else
			add_number(text, value);
	}
}

static void write_fields(struct text *text, const struct records *records, const struct field *field, size_t count)
{
	for (size_t i = 0; i < count; i++)
		write_field(text, records, &field[i]);
}

/* ---- models and layers ---- */

static void label_model(struct text *text, const struct metrics_snapshot *snapshot, const void *record)
{
	const struct metrics_model *model = record;

	(void)snapshot;
	add_label(text, "model", model->name);
	add(text, ",");
	add_label(text, "view", model->view);
}

static void label_layer(struct text *text, const struct metrics_snapshot *snapshot, const void *record)
{
	const struct metrics_layer *layer = record;

	label_model(text, snapshot, &snapshot->model[layer->model]);
	if (layer->layer == METRICS_LAYER_OTHER)
		add(text, ",layer=\"other\"");
	else
		add(text, ",layer=\"%u\"", layer->layer);
}

#define MODEL(field) offsetof(struct metrics_model, field)
static const struct field model_fields[] = {
	{"cnre_model_experts", GAUGE, NULL, MODEL(objects), "Experts of the model."},
	{"cnre_model_resident_experts", GAUGE, NULL, MODEL(resident_objects), "Experts of the model that are resident now."},
	{"cnre_model_resident_bytes", GAUGE, "bytes", MODEL(resident_bytes), "Slab bytes of the model's resident experts."},
	{"cnre_model_payload_bytes", GAUGE, "bytes", MODEL(payload_bytes), "Bytes of all experts of the model."},
	{"cnre_model_rejections", COUNTER, NULL, MODEL(rejections), "Loads that nobody waited for and the policy did not let displace anybody."},
	{"cnre_model_prefetches_issued", COUNTER, NULL, MODEL(prefetches), "Prefetch loads begun of the model's experts."},
	{"cnre_model_prefetches_unused", GAUGE, NULL, MODEL(prefetches_unused), "Of these, experts resident or arriving that no lookup has asked for yet."},
	{"cnre_model_first_uses", COUNTER, NULL, MODEL(distances.first_uses), "Lookups of an expert that had not been used before, as far as logs were read."},
};

#define LAYER(field) offsetof(struct metrics_layer, field)
static const struct field layer_fields[] = {
	{"cnre_layer_experts", GAUGE, NULL, LAYER(experts), "Experts of the layer."},
	{"cnre_layer_resident_experts", GAUGE, NULL, LAYER(resident), "Experts of the layer that are resident or arriving."},
	{"cnre_layer_capacity_experts", GAUGE, NULL, LAYER(capacity), "Experts that the layer may have; 0: the policy sets no bound."},
	{"cnre_layer_accesses", COUNTER, NULL, LAYER(accesses), "Lookups in the layer, by sessions of this manager."},
	{"cnre_layer_hits", COUNTER, NULL, LAYER(hits), "Of these, lookups that found the expert resident."},
	{"cnre_layer_misses", COUNTER, NULL, LAYER(misses), "Of these, lookups that had to wait for a read."},
	{"cnre_layer_joins", COUNTER, NULL, LAYER(joins), "Misses served by a read that another lookup or a prefetch had begun."},
	{"cnre_layer_physical_misses", COUNTER, NULL, LAYER(physical_misses), "Misses without joins; divide the layer's felt wait by these."},
	{"cnre_layer_felt_wait_seconds", COUNTER, "seconds", LAYER(wait_ns), "Time that client threads were blocked in the layer's lookups."},
	{"cnre_layer_looked_up_bytes", COUNTER, "bytes", LAYER(bytes_looked_up), "Payload of the experts that lookups in the layer asked for."},
	{"cnre_layer_loads", COUNTER, NULL, LAYER(loads), "Physical loads completed of the layer's experts."},
	{"cnre_layer_service_seconds", COUNTER, "seconds", LAYER(service_ns),
	 "Time from submission to completion, summed over the layer's loads."},
	{"cnre_layer_read_bytes", COUNTER, "bytes", LAYER(bytes_read), "Bytes read for the layer's experts, alignment and further attempts included."},
	{"cnre_layer_evictions", COUNTER, NULL, LAYER(evictions), "Experts of the layer that were evicted."},
};

/* One of times for each record of a table; offset: of the histogram in it. */
static void write_histograms(struct text *text, const struct records *records, const struct field *field)
{
	begin_family(text, field->name, HISTOGRAM, "seconds", field->help);
	for (uint32_t r = 0; r < records->count; r++) {
		const struct metrics_histogram *histogram =
			(const void *)((const char *)record_at(records, r) + field->offset);
		uint64_t count = 0;

		for (uint32_t i = 0; i <= METRICS_BUCKETS; i++) {
			count += histogram->bucket[i];
			add(text, "%s_bucket{", field->name);
			records->label(text, records->snapshot, record_at(records, r));
			add(text, ",le=\"%s\"}", i < METRICS_BUCKETS ? metrics_bounds[i].le : "+Inf");
			add_number(text, count);
		}
		add(text, "%s_sum{", field->name);
		records->label(text, records->snapshot, record_at(records, r));
		add(text, "}");
		add_seconds(text, histogram->sum_ns);
		add(text, "%s_count{", field->name);
		records->label(text, records->snapshot, record_at(records, r));
		add(text, "}");
		add_number(text, count);
	}
}

/* Experts of the same layer that were used between two uses of one. First uses are at no distance, and counted apart. */
static void write_distances(struct text *text, const struct metrics_snapshot *snapshot)
{
	static const char name[] = "cnre_model_reuse_distance_experts";

	begin_family(text, name, HISTOGRAM, "experts",
		     "How many other experts of its layer were used since an expert was used before; each lookup whose log was read, none is sampled.");
	for (uint32_t m = 0; m < snapshot->model_count; m++) {
		const struct metrics_model *model = &snapshot->model[m];
		uint64_t count = 0;

		for (uint32_t i = 0; i < CURVE_DISTANCES; i++) {
			count += model->distances.bucket[i];
			add(text, "%s_bucket{", name);
			label_model(text, snapshot, model);
			add(text, ",le=\"%u.0\"} %" PRIu64 "\n", (1u << i) - 1, count);
		}
		add(text, "%s_bucket{", name);
		label_model(text, snapshot, model);
		add(text, ",le=\"+Inf\"} %" PRIu64 "\n%s_sum{", count, name);
		label_model(text, snapshot, model);
		add(text, "} %" PRIu64 "\n%s_count{", model->distances.sum, name);
		label_model(text, snapshot, model);
		add(text, "} %" PRIu64 "\n", count);
	}
}

static void write_prefetches(struct text *text, const struct metrics_snapshot *snapshot)
{
	static const char *const ends[PREFETCH_ENDS] = {
		[PREFETCH_USED] = "used", [PREFETCH_LATE] = "late", [PREFETCH_WASTED] = "wasted", [PREFETCH_FAILED] = "failed"};

	begin_family(text, "cnre_model_prefetches", COUNTER, NULL,
		     "What became of prefetches; with the unused ones they are all that were issued.");
	for (uint32_t m = 0; m < snapshot->model_count; m++)
		for (int end = 0; end < PREFETCH_ENDS; end++) {
			add(text, "cnre_model_prefetches_total{");
			label_model(text, snapshot, &snapshot->model[m]);
			add(text, ",outcome=\"%s\"} %" PRIu64 "\n", ends[end], snapshot->model[m].prefetches_ended[end]);
		}
}

static const struct field model_times[] = {
	{"cnre_load_service_seconds", HISTOGRAM, "seconds", MODEL(service),
	 "Time of a load from its first read's submission to its completion."},
	{"cnre_visit_felt_wait_seconds", HISTOGRAM, "seconds", MODEL(wait),
	 "Time that a client was blocked in one visit of a layer, of visits that missed."},
};

static void write_models(struct text *text, const struct metrics_snapshot *snapshot)
{
	struct records models = {snapshot, snapshot->model, sizeof snapshot->model[0], snapshot->model_count, label_model};
	struct records layers = {snapshot, snapshot->layer, sizeof snapshot->layer[0], snapshot->layer_count, label_layer};

	write_fields(text, &models, model_fields, CNRE_COUNT_OF(model_fields));
	for (size_t i = 0; i < CNRE_COUNT_OF(model_times); i++)
		write_histograms(text, &models, &model_times[i]);
	write_distances(text, snapshot);
	write_prefetches(text, snapshot);
	write_fields(text, &layers, layer_fields, CNRE_COUNT_OF(layer_fields));
}

/* ---- clients ---- */

static void label_client(struct text *text, const struct metrics_snapshot *snapshot, const void *record)
{
	(void)snapshot;
	add_label(text, "client", ((const struct metrics_client *)record)->name);
}

#define CLIENT(field) offsetof(struct metrics_client, field)
static const struct field client_fields[] = {
	{"cnre_client_sessions", GAUGE, NULL, CLIENT(sessions), "Sessions of clients with this name that are attached now."},
	{"cnre_client_leased_experts", GAUGE, NULL, CLIENT(leased), "Experts that they hold under a lease."},
	{"cnre_client_accesses", COUNTER, NULL, CLIENT(accesses), "Lookups of clients with this name, also of those that ended."},
	{"cnre_client_hits", COUNTER, NULL, CLIENT(hits), "Of these, lookups that found the expert resident."},
	{"cnre_client_misses", COUNTER, NULL, CLIENT(misses), "Of these, lookups that had to wait for a read."},
	{"cnre_client_joins", COUNTER, NULL, CLIENT(joins), "Misses served by a read that another lookup or a prefetch had begun."},
	{"cnre_client_failures", COUNTER, NULL, CLIENT(failures), "Lookups that ended in an error."},
	{"cnre_client_felt_wait_seconds", COUNTER, "seconds", CLIENT(wait_ns), "Time that threads of these clients were blocked in lookups."},
	{"cnre_client_looked_up_bytes", COUNTER, "bytes", CLIENT(bytes_looked_up), "Payload of the experts that their lookups asked for."},
};

static void write_clients(struct text *text, const struct metrics_snapshot *snapshot)
{
	struct records clients = {snapshot, snapshot->client, sizeof snapshot->client[0], snapshot->client_count, label_client};

	write_fields(text, &clients, client_fields, CNRE_COUNT_OF(client_fields));
}

/* ---- drives ---- */

static void label_drive(struct text *text, const struct metrics_snapshot *snapshot, const void *record)
{
	const struct metrics_drive *drive = record;

	(void)snapshot;
	add(text, "drive=\"%u:%u\"", major(drive->device), minor(drive->device));
}

#define DRIVE(field) offsetof(struct metrics_drive, field)
static const struct field drive_fields[] = {
	{"cnre_drive_read_bytes", COUNTER, "bytes", DRIVE(bytes), "Bytes read from the drive by this manager."},
	{"cnre_drive_reads", COUNTER, NULL, DRIVE(reads), "Reads of the drive that ended."},
	{"cnre_drive_read_seconds", COUNTER, "seconds", DRIVE(read_ns), "Time from submission to completion, summed over the reads."},
	{"cnre_drive_reads_in_flight", GAUGE, NULL, DRIVE(in_flight), "Reads of the drive under way."},
	{"cnre_drive_failovers", COUNTER, NULL, DRIVE(failovers), "Loads that left the drive for another replica."},
};
static const struct field drive_times = {"cnre_drive_read_time_seconds", HISTOGRAM, "seconds", DRIVE(read),
					 "Time of a read from its submission to its completion."};

/* The kernel's own word for a device; "": it has none, as a network's or a tmpfs. */
static void read_device_name(uint64_t device, char name[DEVICE_BYTES])
{
	char path[64], line[DEVICE_BYTES];
	FILE *file;

	(void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u/uevent", major(device), minor(device));
	name[0] = '\0';
	file = fopen(path, "re");
	while (file != NULL && name[0] == '\0' && fgets(line, sizeof line, file) != NULL)
		(void)sscanf(line, "DEVNAME=%127s", name);
	if (file != NULL)
		(void)fclose(file);
}

static void write_drive_words(struct text *text, const struct metrics_snapshot *snapshot)
{
	static const char *const states[] = {
		[METRICS_DRIVE_OK] = "ok", [METRICS_DRIVE_DEGRADED] = "degraded", [METRICS_DRIVE_HANGS] = "hangs"};
	char name[DEVICE_BYTES];

	begin_family(text, "cnre_drive_info", GAUGE, NULL, "1, and the kernel's name of the drive.");
	for (uint32_t i = 0; i < snapshot->drive_count; i++) {
		read_device_name(snapshot->drive[i].device, name);
		add(text, "cnre_drive_info{");
		label_drive(text, snapshot, &snapshot->drive[i]);
		add(text, ",");
		add_label(text, "name", name);
		add(text, "} 1\n");
	}
	begin_family(text, "cnre_drive_state", GAUGE, NULL, "1 for the state that the drive is in, 0 for the others.");
	for (uint32_t i = 0; i < snapshot->drive_count; i++)
		for (int state = 0; state < METRICS_DRIVE_STATES; state++) {
			add(text, "cnre_drive_state{");
			label_drive(text, snapshot, &snapshot->drive[i]);
			add(text, ",state=\"%s\"} %d\n", states[state], (int)snapshot->drive[i].state == state);
		}
}

static void write_drive_levels(struct text *text, const struct metrics_snapshot *snapshot)
{
	begin_family(text, "cnre_drive_weight", GAUGE, NULL,
		     "Part of the reads that the drive gets beside its replicas; 0: none, or it has no replica.");
	for (uint32_t i = 0; i < snapshot->drive_count; i++) {
		add(text, "cnre_drive_weight{");
		label_drive(text, snapshot, &snapshot->drive[i]);
		add(text, "} %.6g\n", snapshot->drive[i].weight);
	}
	begin_family(text, "cnre_drive_speed_bytes_per_second", GAUGE, NULL, "Measured speed of the drive; 0: it is not known.");
	for (uint32_t i = 0; i < snapshot->drive_count; i++) {
		add(text, "cnre_drive_speed_bytes_per_second{");
		label_drive(text, snapshot, &snapshot->drive[i]);
		add(text, "} %.6g\n", snapshot->drive[i].speed);
	}
}

static void write_drives(struct text *text, const struct metrics_snapshot *snapshot)
{
	static const char *const kinds[] = {"io", "short", "gone", "digest", "timeout"};
	struct records drives = {snapshot, snapshot->drive, sizeof snapshot->drive[0], snapshot->drive_count, label_drive};

	write_fields(text, &drives, drive_fields, CNRE_COUNT_OF(drive_fields));
	write_histograms(text, &drives, &drive_times);
	write_drive_words(text, snapshot);
	write_drive_levels(text, snapshot);
	begin_family(text, "cnre_drive_errors", COUNTER, NULL, "Reads of the drive that failed, by what was wrong.");
	for (uint32_t i = 0; i < snapshot->drive_count; i++)
		for (size_t kind = 0; kind < CNRE_COUNT_OF(kinds); kind++) {
			add(text, "cnre_drive_errors_total{");
			label_drive(text, snapshot, &snapshot->drive[i]);
			add(text, ",kind=\"%s\"} %" PRIu64 "\n", kinds[kind], snapshot->drive[i].errors[kind]);
		}
	begin_family(text, "cnre_read_before_restart_bytes", GAUGE, "bytes",
		     "Bytes read by managers that this one took over from; their drives are not known.");
	add(text, "cnre_read_before_restart_bytes %" PRIu64 "\n", snapshot->read_before_bytes);
}

/* ---- GPUs ---- */

static void label_vram(struct text *text, const struct metrics_snapshot *snapshot, const void *record)
{
	(void)snapshot;
	add_label(text, "device", ((const struct metrics_vram *)record)->uuid);
}

#define VRAM(field) offsetof(struct metrics_vram, field)
static const struct field vram_fields[] = {
	{"cnre_vram_device_serves", GAUGE, NULL, VRAM(serves), "1: the GPU serves; 0: it is lost, and its experts are served from RAM."},
	{"cnre_vram_device_memory_bytes", GAUGE, "bytes", VRAM(total_bytes), "Memory of the GPU."},
	{"cnre_vram_device_free_bytes", GAUGE, "bytes", VRAM(free_bytes), "Of these, what was free when the driver was last asked."},
	{"cnre_vram_device_budget_bytes", GAUGE, "bytes", VRAM(budget_bytes), "What experts may have of it."},
	{"cnre_vram_device_charged_bytes", GAUGE, "bytes", VRAM(charged_bytes), "What the driver charges for their arenas."},
	{"cnre_vram_device_used_bytes", GAUGE, "bytes", VRAM(used_bytes), "Places of experts in these."},
	{"cnre_vram_device_experts", GAUGE, NULL, VRAM(experts), "Experts there, or on their way."},
	{"cnre_vram_device_clients", GAUGE, NULL, VRAM(clients), "Clients that have it open."},
	{"cnre_vram_device_uploads", COUNTER, NULL, VRAM(uploads), "Experts copied to it."},
	{"cnre_vram_device_upload_bytes", COUNTER, "bytes", VRAM(upload_bytes), "Bytes of these."},
	{"cnre_vram_device_upload_seconds", COUNTER, "seconds", VRAM(upload_ns), "Time in which at least one was on its way."},
	{"cnre_vram_device_upload_errors", COUNTER, NULL, VRAM(upload_errors), "Uploads that failed."},
	{"cnre_vram_device_evictions", COUNTER, NULL, VRAM(evictions), "Experts that left it."},
	{"cnre_vram_device_evictions_refused", COUNTER, NULL, VRAM(refused), "Victims found leased after all and left there."},
};

static void write_vram(struct text *text, const struct metrics_snapshot *snapshot)
{
	struct records devices = {snapshot, snapshot->vram, sizeof snapshot->vram[0], snapshot->vram_count, label_vram};

	if (snapshot->vram_count > 0)
		write_fields(text, &devices, vram_fields, CNRE_COUNT_OF(vram_fields));
}

/* ---- tiers ---- */

static uint64_t counter_at(const struct metrics_snapshot *snapshot, size_t offset)
{
	for (size_t i = 0; i < cnre_counter_count; i++)
		if (cnre_counter_table[i].offset == offset)
			return snapshot->counter[i];
	return 0;
}
#define COUNTED(snapshot, name) counter_at(snapshot, offsetof(struct cnre_counters, name))

static void write_tiers(struct text *text, const struct metrics_snapshot *snapshot)
{
	begin_family(text, "cnre_tier_accesses", COUNTER, NULL, "Lookups of an expert by the tier that answered them.");
	add(text, "cnre_tier_accesses_total{tier=\"vram\"} %" PRIu64 "\n", COUNTED(snapshot, vram_hits));
	add(text, "cnre_tier_accesses_total{tier=\"ram\"} %" PRIu64 "\n", COUNTED(snapshot, hits) - COUNTED(snapshot, vram_hits));
	add(text, "cnre_tier_accesses_total{tier=\"drive\"} %" PRIu64 "\n", COUNTED(snapshot, misses));
	begin_family(text, "cnre_tier_resident_bytes", GAUGE, "bytes", "What a tier holds, by the kind of object.");
	add(text, "cnre_tier_resident_bytes{tier=\"vram\",object=\"expert\"} %" PRIu64 "\n", COUNTED(snapshot, vram_bytes));
	add(text, "cnre_tier_resident_bytes{tier=\"ram\",object=\"expert\"} %" PRIu64 "\n", COUNTED(snapshot, resident_bytes));
	add(text, "cnre_tier_resident_bytes{tier=\"ram\",object=\"kv\"} %" PRIu64 "\n", COUNTED(snapshot, kv_resident_bytes));
	add(text, "cnre_tier_resident_bytes{tier=\"file\",object=\"kv\"} %" PRIu64 "\n", snapshot->kv_file_bytes);
	begin_family(text, "cnre_tier_budget_bytes", GAUGE, "bytes", "What a tier may hold, by the kind of object.");
	add(text, "cnre_tier_budget_bytes{tier=\"vram\",object=\"expert\"} %" PRIu64 "\n", COUNTED(snapshot, vram_budget_bytes));
	add(text, "cnre_tier_budget_bytes{tier=\"ram\",object=\"expert\"} %" PRIu64 "\n", COUNTED(snapshot, budget_bytes));
	add(text, "cnre_tier_budget_bytes{tier=\"ram\",object=\"kv\"} %" PRIu64 "\n", COUNTED(snapshot, kv_budget_bytes));
	begin_family(text, "cnre_pool_backing_bytes", GAUGE, "bytes", "Memory of the pool by the kind of its pages.");
	for (int i = CNRE_BACKING_1G; i <= CNRE_BACKING_4K; i++)
		add(text, "cnre_pool_backing_bytes{pages=\"%s\"} %" PRIu64 "\n", cnre_backing_name((enum cnre_backing)i),
		    snapshot->backing_bytes[i]);
}

/* ---- the manager ---- */

static void write_manager(struct text *text, const struct metrics_snapshot *snapshot)
{
	begin_family(text, "cnre_build_info", GAUGE, NULL, "1, with the version of the manager and the residency policy in force.");
	add(text, "cnre_build_info{version=\"" CNRE_VERSION "\",");
	add_label(text, "policy", snapshot->policy);
	add(text, "} 1\n");
	begin_family(text, "cnre_start_time_seconds", GAUGE, "seconds", "When this manager was started, since the Unix epoch.");
	add(text, "cnre_start_time_seconds %" PRId64 ".%03" PRId64 "\n", snapshot->started_unix_ns / (int64_t)NS_PER_S,
	    snapshot->started_unix_ns % (int64_t)NS_PER_S / 1000000);
}

char *metrics_text(const struct metrics_snapshot *snapshot, int is_openmetrics, size_t *ret_bytes)
{
	struct text text = {.is_openmetrics = is_openmetrics};

	write_manager(&text, snapshot);
	write_counters(&text, snapshot);
	write_tiers(&text, snapshot);
	write_models(&text, snapshot);
	write_clients(&text, snapshot);
	write_drives(&text, snapshot);
	write_vram(&text, snapshot);
	if (is_openmetrics)
		add(&text, "# EOF\n");
	if (text.failed) {
		free(text.base);
		return NULL;
	}
	*ret_bytes = text.bytes;
	return text.base;
}
