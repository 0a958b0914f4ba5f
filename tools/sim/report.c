/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables, JSON and CSV; see report.h. Names carry their units; a wait is in seconds where it is a sum, else in
 * microseconds.
 */
#include "tools/sim/report.h"

#include "base/size.h"

#include <errno.h>

static double share(uint64_t part, uint64_t whole)
{
	return whole == 0 ? 0 : (double)part / (double)whole;
}

/* ---- table ---- */

void sim_report_table_head(FILE *out)
{
	fprintf(out, "%-22s %12s %12s %7s %12s %12s %11s %11s %11s %11s\n", "policy", "hits", "misses", "hit %",
		"evictions", "not placed", "felt s", "mean us", "p50 us", "p99 us");
}

void sim_report_table_row(FILE *out, const struct sim_result *result)
{
	const struct sim_counts *counts = &result->counts;

	fprintf(out, "%-22s %12llu %12llu %7.2f %12llu %12llu %11.3f %11.0f %11.0f %11.0f\n", result->label,
		(unsigned long long)counts->hits, (unsigned long long)counts->misses,
		100 * share(counts->hits, counts->accesses), (unsigned long long)counts->evictions,
		(unsigned long long)(counts->bypasses + counts->rejections), counts->felt_us / 1e6,
		counts->token_mean_us, counts->token_p50_us, counts->token_p99_us);
}

void sim_report_vram_head(FILE *out)
{
	fprintf(out, "%-22s %12s %12s %7s %12s %12s %11s %11s %11s %11s\n", "vram", "hits", "other hits", "vram %",
		"promotions", "demotions", "MiB a token", "RAM hits s", "uploads s", "critical s");
}

void sim_report_vram_row(FILE *out, const struct sim_result *result)
{
	const struct sim_counts *counts = &result->counts;

	fprintf(out, "%-22s %12llu %12llu %7.2f %12llu %12llu %11.3f %11.3f %11.3f %11.3f\n", result->label,
		(unsigned long long)counts->vram_hits, (unsigned long long)(counts->hits - counts->vram_hits),
		100 * share(counts->vram_hits, counts->accesses), (unsigned long long)counts->promotions,
		(unsigned long long)counts->demotions, share(counts->upload_bytes, counts->tokens) / (1u << 20),
		counts->ram_hit_us / 1e6, counts->upload_us / 1e6, counts->critical_us / 1e6);
}

const char *sim_report_size(const struct sim_capacity *capacity, char text[32])
{
	if (capacity->unit == SIM_BYTES)
		return cnre_size_format(capacity->amount, text, 32);
	(void)snprintf(text, 32, "%llu %s", (unsigned long long)capacity->amount,
		       capacity->unit == SIM_OBJECTS ? "objects" : "slots per layer");
	return text;
}

/* ---- CSV ---- */

static const char *unit_name(enum sim_unit unit)
{
	return unit == SIM_BYTES ? "bytes" : unit == SIM_OBJECTS ? "objects" : "slots_per_layer";
}

void sim_report_csv_head(FILE *out)
{
	fputs("policy,capacity_unit,capacity,accesses,hits,misses,evictions,admissions,bypasses,rejections,seed_hits,"
	      "startup_bytes,read_bytes,avoided_bytes,migration_bytes,felt_wait_s,critical_path_s,token_felt_mean_us,"
	      "token_felt_p50_us,token_felt_p99_us,vram_hits,promotions,demotions,upload_bytes,ram_hit_s,upload_s\n",
	      out);
}

void sim_report_csv_row(FILE *out, const struct sim_result *result)
{
	const struct sim_counts *counts = &result->counts;
	const uint64_t number[] = {counts->accesses,   counts->hits,          counts->misses,
				   counts->evictions,  counts->admissions,    counts->bypasses,
				   counts->rejections, counts->seed_hits,     counts->startup_bytes,
				   counts->read_bytes, counts->avoided_bytes, counts->migration_bytes};

	fprintf(out, "%s,%s,%llu", result->label, unit_name(result->capacity.unit),
		(unsigned long long)result->capacity.amount);
	for (size_t i = 0; i < sizeof number / sizeof number[0]; i++)
		fprintf(out, ",%llu", (unsigned long long)number[i]);
	fprintf(out, ",%.6f,%.6f,%.3f,%.3f,%.3f", counts->felt_us / 1e6, counts->critical_us / 1e6,
		counts->token_mean_us, counts->token_p50_us, counts->token_p99_us);
	fprintf(out, ",%llu,%llu,%llu,%llu,%.6f,%.6f\n", (unsigned long long)counts->vram_hits,
		(unsigned long long)counts->promotions, (unsigned long long)counts->demotions,
		(unsigned long long)counts->upload_bytes, counts->ram_hit_us / 1e6, counts->upload_us / 1e6);
}

/* ---- JSON ---- */

/* Arrays by layer: capacity null where the layer has no bound of its own. */
static json_t *layers_of(const struct sim_counts *counts)
{
	json_t *capacity = json_array(), *resident = json_array(), *accesses = json_array(), *misses = json_array(),
	       *felt = json_array(), *vram = json_array();

	for (uint32_t i = 0; i < counts->layer_count; i++) {
		const struct sim_layer_counts *layer = &counts->layer[i];

		json_array_append_new(capacity,
				      layer->capacity == POLICY_NONE ? json_null() : json_integer(layer->capacity));
		json_array_append_new(resident, json_integer(layer->resident));
		json_array_append_new(accesses, json_integer((json_int_t)layer->accesses));
		json_array_append_new(misses, json_integer((json_int_t)layer->misses));
		json_array_append_new(vram, json_integer((json_int_t)layer->vram_hits));
		json_array_append_new(felt, json_real(layer->felt_us / 1e6));
	}
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "capacity", capacity, "resident", resident, "accesses",
			 accesses, "misses", misses, "vram_hits", vram, "felt_wait_s", felt);
}

static json_t *tiers_of(const struct sim_counts *counts)
{
	json_t *tiers = json_object();

	for (uint32_t i = 0; i < SIM_TIERS_MAX && counts->tier[i].name[0] != '\0'; i++)
		json_object_set_new(tiers, counts->tier[i].name, json_integer((json_int_t)counts->tier[i].hits));
	return tiers;
}

json_t *sim_report_counts(const struct sim_counts *counts)
{
	const struct {
		const char *name;
		uint64_t value;
	} numbers[] = {
		{"accesses", counts->accesses},
		{"hits", counts->hits},
		{"misses", counts->misses},
		{"evictions", counts->evictions},
		{"admissions", counts->admissions},
		{"bypasses", counts->bypasses},
		{"rejections", counts->rejections},
		{"seed_hits", counts->seed_hits},
		{"admitted_hits", counts->hits - counts->seed_hits},
		{"seeds", counts->seeds},
		{"tokens", counts->tokens},
		{"visits", counts->visits},
		{"startup_bytes", counts->startup_bytes},
		{"read_bytes", counts->read_bytes},
		{"avoided_bytes", counts->avoided_bytes},
		{"migration_bytes", counts->migration_bytes},
		{"promotions", counts->promotions},
		{"demotions", counts->demotions},
		{"upload_bytes", counts->upload_bytes},
	};
	const struct {
		const char *name;
		double value;
	} reals[] = {
		{"felt_wait_s", counts->felt_us / 1e6},
		{"critical_path_s", counts->critical_us / 1e6},
		{"hit_ratio", share(counts->hits, counts->accesses)},
		{"loads_per_token", share(counts->misses, counts->tokens)},
		{"evictions_per_token", share(counts->evictions, counts->tokens)},
		{"upload_bytes_per_token", share(counts->upload_bytes, counts->tokens)},
		{"ram_hit_s", counts->ram_hit_us / 1e6},
		{"upload_s", counts->upload_us / 1e6},
		{"token_felt_mean_us", counts->token_mean_us},
		{"token_felt_p50_us", counts->token_p50_us},
		{"token_felt_p99_us", counts->token_p99_us},
	};
	json_t *object = json_object();

	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		json_object_set_new(object, numbers[i].name, json_integer((json_int_t)numbers[i].value));
	for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
		json_object_set_new(object, reals[i].name, json_real(reals[i].value));
	json_object_set_new(object, "tier_hits", tiers_of(counts));
	json_object_set_new(object, "layers", layers_of(counts));
	return object;
}

json_t *sim_report_capacity(const struct sim_capacity *capacity)
{
	return json_pack("{s:s, s:I}", "unit", unit_name(capacity->unit), "amount", (json_int_t)capacity->amount);
}

json_t *sim_report_traces(const struct sim_study *study)
{
	json_t *traces = json_array();

	for (uint32_t i = 0; i < study->trace_count; i++) {
		const struct sim_trace *trace = &study->trace[i];
		json_t *path = json_string(trace->path); /* NULL: not UTF-8, as file names may be */

		json_array_append_new(traces, json_pack("{s:o*, s:s*, s:I, s:I, s:I}", "path", path, "category",
							path != NULL ? trace->category : NULL, "accesses",
							(json_int_t)trace->access_count, "tokens",
							(json_int_t)trace->token_count, "lost",
							(json_int_t)trace->lost));
	}
	return traces;
}

int sim_report_print(FILE *out, json_t *object)
{
	int r = object == NULL ? -ENOMEM : 0;

	errno = 0;
	if (r == 0 && (json_dumpf(object, out, JSON_COMPACT) < 0 || putc('\n', out) == EOF || fflush(out) != 0))
		r = errno != 0 ? -errno : -EIO;
	json_decref(object);
	return r;
}
