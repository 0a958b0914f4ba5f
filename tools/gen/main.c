/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnre-gen: makes checkpoints for tests and benchmarks, of any size, from nothing but a seed. Their bytes can be derived
 * again (--verify), a forward pass through them stays finite, and their routing is as uneven as that of real models. It is
 * not a converter and makes no text.
 */
#include "base/clock.h"
#include "base/size.h"
#include "tools/gen/checkpoint.h"
#include "tools/gen/options.h"

#include <stdio.h>

static const char usage[] =
	"usage: cnre-gen --family NAME --out DIR --layers L --experts E --top-k K --hidden H --intermediate I\n"
	"                --vocab V --seed S [options]\n"
	"       cnre-gen --verify DIR [--progress]\n"
	"\n"
	"  --family NAME             olmoe glm glm53 kimi_k3 inkling qwen36 qwen38 deepseek_v4 deepseek_v41 mimo\n"
	"  --expert-format FORMAT    int8-row bf16 f16 f32 int4-row int4-gs64 int4-gs128 int2-row int3-g64 iq3 mxfp4 fp4\n"
	"                            fp8-block fp8-block-bf16, as far as the family has it; default: its usual one\n"
	"  --mixed-layer L:FORMAT    another format for the experts of layer L; may be repeated\n"
	"  --matrix-format M:FORMAT  another format for gate, up or down of every expert\n"
	"  --dense-format FORMAT     bf16, f16, f32\n"
	"  --dense-layers N          the first N layers have no experts\n"
	"  --mtp N                   rows of experts after the last layer\n"
	"  --mtp-experts N           how many experts each of them has\n"
	"  --latent N                width that experts work in\n"
	"  --popularity KIND         uniform (default), glm, olmoe: how uneven routing is; olmoe only\n"
	"  --heads N                 attention heads\n"
	"  --prefix TEXT             of tensor names, where the family has several\n"
	"  --config nested|flat      values in text_config, or at the top as for the text model alone\n"
	"  --shard-names KIND        hf, converter\n"
	"  --shard-bytes SIZE        close a shard before it grows beyond this (default 4G)\n"
	"  --unaligned               pack tensors as converters do; default: experts at multiples of 4096\n"
	"  --scattered               the tensors of an expert anywhere, in any shard\n"
	"  --force                   replace what is in DIR\n"
	"  --verify DIR              derive every byte of DIR again and compare\n"
	"  --progress                a line a shard on standard error\n"
	"  --help, --version\n"
	"\n"
	"example: cnre-gen --family olmoe --out /tmp/m --layers 4 --experts 16 --top-k 4 --hidden 64 \\\n"
	"                  --intermediate 64 --vocab 128 --seed 1 --popularity olmoe\n";

static void show_progress(const char *shard, uint32_t done, uint32_t count, uint64_t bytes_so_far)
{
	char size[16];

	(void)fprintf(stderr, "cnre-gen: %s: %u of %u, %s\n", shard, done, count,
		      cnre_size_format(bytes_so_far, size, sizeof size));
}

static void show_report(const struct gen_options *options, const struct gen_report *report, int64_t start_ns)
{
	double seconds = (double)(cnre_clock_now_ns() - start_ns) / 1e9;
	const char *verb = options->verify ? "verified" : report->shards_kept == report->shards ? "kept" : "wrote";
	char size[16];

	(void)printf("%s %s: %u shards, %s in %.1f s\n", verb, options->directory, report->shards,
		     cnre_size_format(report->bytes, size, sizeof size), seconds);
}

static int run(const struct gen_options *options)
{
	gen_progress *progress = options->progress ? show_progress : NULL;
	int64_t start_ns = cnre_clock_now_ns();
	char message[GEN_MESSAGE_BYTES] = "";
	struct gen_report report;
	int result;

	if (options->verify)
		result = gen_checkpoint_verify(options->directory, progress, &report, message);
	else
		result = gen_checkpoint_write(&options->model, options->directory, options->force, progress, &report,
					      message);
	if (result < 0) {
		(void)fprintf(stderr, "cnre-gen: %s\n", message);
		return 1;
	}
	show_report(options, &report, start_ns);
	return 0;
}

int main(int argc, char **argv)
{
	static struct gen_options options;
	char message[GEN_MESSAGE_BYTES] = "";

	if (gen_options_parse(argc, argv, &options, message) < 0) {
		(void)fprintf(stderr, "cnre-gen: %s; see cnre-gen --help\n", message);
		return 2;
	}
	if (options.wants_help) {
		(void)fputs(usage, stdout);
		return 0;
	}
	if (options.wants_version) {
		(void)puts("cnre-gen " CNRE_VERSION);
		return 0;
	}
	return run(&options);
}
