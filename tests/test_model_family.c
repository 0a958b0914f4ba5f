/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every family that is built in, at the sizes of its model: the bytes of an expert, and each part's dtype, shape and blocks,
 * against numbers that were worked out by hand from what is known of its container.
 */
#include "model/family.h"

#include "cnre/cnre.h"
#include "model/catalog.h"
#include "tests/support/folder.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct folder folder;
static char message[MODEL_MESSAGE_BYTES];

static void make(void)
{
	folder_make(&folder);
}

static void clean(void)
{
	folder_remove(&folder);
}

TestSuite(model_family, .init = make, .fini = clean, .timeout = 60);

/* ---- a checkpoint of one expert ---- */

#define TENSORS_MAX 6
#define OTHER_FILE "qwen36_meta.json"

struct stored {
	const char *name, *dtype, *shape;
	uint64_t bytes;
};

struct part {
	int dtype;
	uint32_t rows, columns, block_rows, block_columns;
};

struct expert_case {
	const char *what, *family, *format, *config;
	const char *other_text; /* of OTHER_FILE beside config.json; NULL: it is not there */
	struct stored tensor[TENSORS_MAX];
	uint64_t bytes;
	struct part part[6]; /* by role; dtype 0: none */
	uint32_t state;
};

#define SAME_AS_GATE(dtype, rows, columns, block_rows, block_columns)                                         \
	[MODEL_GATE] = {dtype, rows, columns, block_rows, block_columns}, [MODEL_UP] = {dtype, rows, columns, \
											block_rows, block_columns}
#define SAME_SCALES(dtype, rows, columns, block_rows, block_columns)                                          \
	[MODEL_GATE_SCALE] = {dtype, rows, columns, block_rows, block_columns}, [MODEL_UP_SCALE] = {          \
											dtype, rows, columns, \
											block_rows, block_columns}

#define GLM_CONFIG                                                                                                  \
	"{\"model_type\":\"glm_moe_dsa\",\"num_hidden_layers\":1,\"n_routed_experts\":1,\"num_experts_per_tok\":1," \
	"\"hidden_size\":6144,\"moe_intermediate_size\":2048,\"intermediate_size\":12288,\"first_k_dense_replace\":0}"
#define GLM "model.layers.0.mlp.experts.0."
/* Gate and up of 2048 rows and 6144 columns, down of 6144 rows and 2048 columns. */
#define GLM_TENSORS(in, in_bytes, out, out_bytes, in_scales, in_scale_bytes, out_scales, out_scale_bytes) \
	{GLM "gate_proj.weight", "U8", in, in_bytes}, {GLM "up_proj.weight", "U8", in, in_bytes},         \
		{GLM "down_proj.weight", "U8", out, out_bytes},                                           \
		{GLM "gate_proj.weight.qs", "F32", in_scales, in_scale_bytes},                            \
		{GLM "up_proj.weight.qs", "F32", in_scales, in_scale_bytes},                              \
	{                                                                                                 \
		GLM "down_proj.weight.qs", "F32", out_scales, out_scale_bytes                             \
	}

#define V4_TENSORS(e, in, in_bytes, out, out_bytes, in_scales, in_scale_bytes, out_scales, out_scale_bytes)           \
	{e "w1.scale", "F8_E8M0", in_scales, in_scale_bytes}, {e "w2.scale", "F8_E8M0", out_scales, out_scale_bytes}, \
		{e "w3.scale", "F8_E8M0", in_scales, in_scale_bytes}, {e "w1.weight", "I8", in, in_bytes},            \
		{e "w2.weight", "I8", out, out_bytes},                                                                \
	{                                                                                                             \
		e "w3.weight", "I8", in, in_bytes                                                                     \
	}

#define QWEN36_CONFIG                                                                                               \
	"{\"model_type\":\"qwen3_5_moe_text\",\"num_hidden_layers\":1,\"num_experts\":1,\"num_experts_per_tok\":1," \
	"\"hidden_size\":2048,\"moe_intermediate_size\":512}"
#define QWEN38_CONFIG                                                                                                    \
	"{\"model_type\":\"qwen4_exp\",\"hidden_size\":1280,\"text_config\":{\"num_hidden_layers\":1,\"num_experts\":1," \
	"\"num_experts_per_tok\":1,\"hidden_size\":2560,\"moe_intermediate_size\":640}}"
#define QWEN38 "model.language_model.layers.0.mlp.experts."

static const struct expert_case cases[] = {
	{.what = "GLM-5.2, int4 rows",
	 .family = "glm",
	 .format = "int4-row",
	 .config = GLM_CONFIG,
	 .tensor = {GLM_TENSORS("2048,3072", 6291456, "6144,1024", 6291456, "2048", 8192, "6144", 24576)},
	 .bytes = 18915328,
	 .part = {SAME_AS_GATE(CNRE_U8, 2048, 3072, 0, 0), [MODEL_DOWN] = {CNRE_U8, 6144, 1024, 0, 0},
		  SAME_SCALES(CNRE_F32, 2048, 1, 1, 0), [MODEL_DOWN_SCALE] = {CNRE_F32, 6144, 1, 1, 0}},
	 .state = FAMILY_STATE_ANY_TOKEN},
	{.what = "GLM-5.2, int4 in groups of 64",
	 .family = "glm",
	 .format = "int4-g64",
	 .config = GLM_CONFIG,
	 .tensor = {GLM_TENSORS("2048,3072", 6291456, "6144,1024", 6291456, "2048,96", 786432, "196608", 786432)},
	 .bytes = 21233664,
	 .part = {SAME_AS_GATE(CNRE_U8, 2048, 3072, 0, 0), [MODEL_DOWN] = {CNRE_U8, 6144, 1024, 0, 0},
		  SAME_SCALES(CNRE_F32, 2048, 96, 1, 64), [MODEL_DOWN_SCALE] = {CNRE_F32, 6144, 32, 1, 64}},
	 .state = FAMILY_STATE_ANY_TOKEN},
	{.what = "GLM-5.2, int4 in groups of 128",
	 .family = "glm",
	 .format = "int4-g128",
	 .config = GLM_CONFIG,
	 .tensor = {GLM_TENSORS("2048,3072", 6291456, "6144,1024", 6291456, "98304", 393216, "98304", 393216)},
	 .bytes = 20054016,
	 .part = {SAME_AS_GATE(CNRE_U8, 2048, 3072, 0, 0), [MODEL_DOWN] = {CNRE_U8, 6144, 1024, 0, 0},
		  SAME_SCALES(CNRE_F32, 2048, 48, 1, 128), [MODEL_DOWN_SCALE] = {CNRE_F32, 6144, 16, 1, 128}},
	 .state = FAMILY_STATE_ANY_TOKEN},
	{.what = "GLM-5.2, int8 rows",
	 .family = "glm",
	 .format = "int8-row",
	 .config = GLM_CONFIG,
	 .tensor = {GLM_TENSORS("2048,6144", 12582912, "6144,2048", 12582912, "2048", 8192, "6144", 24576)},
	 .bytes = 37789696,
	 .part = {SAME_AS_GATE(CNRE_I8, 2048, 6144, 0, 0), [MODEL_DOWN] = {CNRE_I8, 6144, 2048, 0, 0},
		  SAME_SCALES(CNRE_F32, 2048, 1, 1, 0), [MODEL_DOWN_SCALE] = {CNRE_F32, 6144, 1, 1, 0}},
	 .state = FAMILY_STATE_ANY_TOKEN},
	{.what = "GLM-5.2, int2 rows",
	 .family = "glm",
	 .format = "int2-row",
	 .config = GLM_CONFIG,
	 .tensor = {GLM_TENSORS("2048,1536", 3145728, "6144,512", 3145728, "2048", 8192, "6144", 24576)},
	 .bytes = 9478144,
	 .part = {SAME_AS_GATE(CNRE_U8, 2048, 1536, 0, 0), [MODEL_DOWN] = {CNRE_U8, 6144, 512, 0, 0},
		  SAME_SCALES(CNRE_F32, 2048, 1, 1, 0), [MODEL_DOWN_SCALE] = {CNRE_F32, 6144, 1, 1, 0}},
	 .state = FAMILY_STATE_ANY_TOKEN},
	{.what = "GLM-5.2, int3 in groups of 64",
	 .family = "glm",
	 .format = "int3-g64",
	 .config = GLM_CONFIG,
	 .tensor = {GLM_TENSORS("2048,96,24", 4718592, "4718592", 4718592, "196608", 786432, "196608", 786432)},
	 .bytes = 16515072,
	 .part = {SAME_AS_GATE(CNRE_U8, 2048, 2304, 0, 0), [MODEL_DOWN] = {CNRE_U8, 6144, 768, 0, 0},
		  SAME_SCALES(CNRE_F32, 2048, 96, 1, 64), [MODEL_DOWN_SCALE] = {CNRE_F32, 6144, 32, 1, 64}},
	 .state = FAMILY_STATE_ANY_TOKEN},
	{.what = "GLM-5.2, E8",
	 .family = "glm",
	 .format = "e8",
	 .config = GLM_CONFIG,
	 .tensor = {GLM_TENSORS("2048,2352", 4816896, "6144,784", 4816896, "1", 4, "1", 4)},
	 .bytes = 14450700,
	 .part = {SAME_AS_GATE(CNRE_U8, 2048, 2352, 0, 0), [MODEL_DOWN] = {CNRE_U8, 6144, 784, 0, 0},
		  SAME_SCALES(CNRE_F32, 1, 1, 0, 0), [MODEL_DOWN_SCALE] = {CNRE_F32, 1, 1, 0, 0}},
	 .state = FAMILY_STATE_ANY_TOKEN},
	{.what = "GLM-5.2, FP8 in bytes",
	 .family = "glm",
	 .format = "fp8-b128",
	 .config = GLM_CONFIG,
	 .tensor = {GLM_TENSORS("2048,6144", 12582912, "6144,2048", 12582912, "16,48", 3072, "48,16", 3072)},
	 .bytes = 37757952,
	 .part = {SAME_AS_GATE(CNRE_F8_E4M3, 2048, 6144, 0, 0), [MODEL_DOWN] = {CNRE_F8_E4M3, 6144, 2048, 0, 0},
		  SAME_SCALES(CNRE_F32, 16, 48, 128, 128), [MODEL_DOWN_SCALE] = {CNRE_F32, 48, 16, 128, 128}},
	 .state = FAMILY_STATE_ANY_TOKEN},
	{.what = "GLM-5.2, original",
	 .family = "glm",
	 .format = "bf16",
	 .config = GLM_CONFIG,
	 .tensor = {{GLM "gate_proj.weight", "BF16", "2048,6144", 25165824},
		    {GLM "up_proj.weight", "BF16", "2048,6144", 25165824},
		    {GLM "down_proj.weight", "BF16", "6144,2048", 25165824}},
	 .bytes = 75497472,
	 .part = {SAME_AS_GATE(CNRE_BF16, 2048, 6144, 0, 0), [MODEL_DOWN] = {CNRE_BF16, 6144, 2048, 0, 0}},
	 .state = FAMILY_STATE_ANY_TOKEN},
	{.what = "GLM-5.3-Flash",
	 .family = "glm53",
	 .format = "int4-g64",
	 .config = "{\"model_type\":\"glm5_next\",\"text_config\":{\"num_hidden_layers\":1,\"n_routed_experts\":1,"
		   "\"num_experts_per_tok\":1,\"hidden_size\":4096,\"moe_intermediate_size\":2048}}",
	 .tensor = {{"model.language_model.layers.0.mlp.experts.0.gate_proj.weight", "U8", "2048,2048", 4194304},
		    {"model.language_model.layers.0.mlp.experts.0.gate_proj.weight.qs", "F32", "2048,64", 524288},
		    {"model.language_model.layers.0.mlp.experts.0.up_proj.weight", "U8", "2048,2048", 4194304},
		    {"model.language_model.layers.0.mlp.experts.0.up_proj.weight.qs", "F32", "2048,64", 524288},
		    {"model.language_model.layers.0.mlp.experts.0.down_proj.weight", "U8", "4096,1024", 4194304},
		    {"model.language_model.layers.0.mlp.experts.0.down_proj.weight.qs", "F32", "4096,32", 524288}},
	 .bytes = 14155776,
	 .part = {SAME_AS_GATE(CNRE_U8, 2048, 2048, 0, 0), [MODEL_DOWN] = {CNRE_U8, 4096, 1024, 0, 0},
		  SAME_SCALES(CNRE_F32, 2048, 64, 1, 64), [MODEL_DOWN_SCALE] = {CNRE_F32, 4096, 32, 1, 64}}},
	{.what = "Kimi K3",
	 .family = "kimi_k3",
	 .format = "mxfp4",
	 .config =
		 "{\"model_type\":\"kimi_k3\",\"text_config\":{\"model_type\":\"kimi_linear\",\"num_hidden_layers\":1,"
		 "\"num_experts\":1,\"num_experts_per_token\":1,\"hidden_size\":7168,\"routed_expert_hidden_size\":3584,"
		 "\"moe_intermediate_size\":3072,\"intermediate_size\":18432,\"first_k_dense_replace\":0}}",
	 .tensor = {{"language_model.model.layers.0.block_sparse_moe.experts.0.w1.weight_packed", "U8", "3072,1792",
		     5505024},
		    {"language_model.model.layers.0.block_sparse_moe.experts.0.w1.weight_scale", "U8", "3072,112",
		     344064},
		    {"language_model.model.layers.0.block_sparse_moe.experts.0.w2.weight_packed", "U8", "3584,1536",
		     5505024},
		    {"language_model.model.layers.0.block_sparse_moe.experts.0.w2.weight_scale", "U8", "3584,96",
		     344064},
		    {"language_model.model.layers.0.block_sparse_moe.experts.0.w3.weight_packed", "U8", "3072,1792",
		     5505024},
		    {"language_model.model.layers.0.block_sparse_moe.experts.0.w3.weight_scale", "U8", "3072,112",
		     344064}},
	 .bytes = 17547264,
	 .part = {SAME_AS_GATE(CNRE_U8, 3072, 1792, 0, 0), [MODEL_DOWN] = {CNRE_U8, 3584, 1536, 0, 0},
		  SAME_SCALES(CNRE_F8_E8M0, 3072, 112, 1, 32), [MODEL_DOWN_SCALE] = {CNRE_F8_E8M0, 3584, 96, 1, 32}},
	 .state = FAMILY_STATE_POINTS},
	{.what = "Inkling, int4",
	 .family = "inkling",
	 .format = "int4-row",
	 .config =
		 "{\"model_type\":\"inkling_mm_model\",\"text_config\":{\"num_hidden_layers\":1,\"n_routed_experts\":1,"
		 "\"num_experts_per_tok\":1,\"hidden_size\":6144,\"intermediate_size\":3072,"
		 "\"dense_intermediate_size\":24576}}",
	 .tensor = {{"model.layers.0.mlp.experts.gate_up_proj", "U8", "1,6144,3072", 18874368},
		    {"model.layers.0.mlp.experts.gate_up_proj.qs", "F32", "1,6144", 24576},
		    {"model.layers.0.mlp.experts.down_proj", "U8", "1,6144,1536", 9437184},
		    {"model.layers.0.mlp.experts.down_proj.qs", "F32", "1,6144", 24576}},
	 .bytes = 28360704,
	 .part = {SAME_AS_GATE(CNRE_U8, 3072, 3072, 0, 0), [MODEL_DOWN] = {CNRE_U8, 6144, 1536, 0, 0},
		  SAME_SCALES(CNRE_F32, 3072, 1, 1, 0), [MODEL_DOWN_SCALE] = {CNRE_F32, 6144, 1, 1, 0}},
	 .state = FAMILY_STATE_POINTS},
	{.what = "Inkling, original, with the other key",
	 .family = "inkling",
	 .format = "bf16",
	 .config =
		 "{\"model_type\":\"inkling\",\"num_hidden_layers\":1,\"n_routed_experts\":1,\"num_experts_per_tok\":1,"
		 "\"hidden_size\":64,\"intermediate_size\":512,\"moe_intermediate_size\":32}",
	 .tensor = {{"model.layers.0.mlp.experts.gate_up_proj", "BF16", "1,64,64", 8192},
		    {"model.layers.0.mlp.experts.down_proj", "BF16", "1,64,32", 4096}},
	 .bytes = 12288,
	 .part = {SAME_AS_GATE(CNRE_BF16, 32, 64, 0, 0), [MODEL_DOWN] = {CNRE_BF16, 64, 32, 0, 0}},
	 .state = FAMILY_STATE_POINTS},
	{.what = "OLMoE",
	 .family = "olmoe",
	 .format = "int8-row",
	 .config = "{\"model_type\":\"olmoe\",\"num_hidden_layers\":1,\"num_experts\":1,\"num_experts_per_tok\":1,"
		   "\"hidden_size\":2048,\"intermediate_size\":1024}",
	 .tensor = {{"model.layers.0.mlp.experts.0.merged_weight", "U8", "6291456", 6291456},
		    {"model.layers.0.mlp.experts.0.qs", "F32", "4096", 16384}},
	 .bytes = 6291456 + 16384,
	 .part = {SAME_AS_GATE(CNRE_I8, 1024, 2048, 0, 0), [MODEL_DOWN] = {CNRE_I8, 2048, 1024, 0, 0},
		  SAME_SCALES(CNRE_F32, 1024, 1, 1, 0), [MODEL_DOWN_SCALE] = {CNRE_F32, 2048, 1, 1, 0}},
	 .state = FAMILY_STATE_ANY_TOKEN},
	{.what = "Qwen3.6, int4 in groups of 64",
	 .family = "qwen36",
	 .format = "int4-g64",
	 .config = QWEN36_CONFIG,
	 .other_text = "{\"expert_gs\":64,\"ebits\":4}",
	 .tensor = {{"model.layers.0.mlp.experts.0.qs", "F32", "49152", 196608},
		    {"model.layers.0.mlp.experts.0.merged_weight", "U8", "1572864", 1572864}},
	 .bytes = 1769472,
	 .part = {SAME_AS_GATE(CNRE_U8, 512, 1024, 0, 0), [MODEL_DOWN] = {CNRE_U8, 2048, 256, 0, 0},
		  SAME_SCALES(CNRE_F32, 512, 32, 1, 64), [MODEL_DOWN_SCALE] = {CNRE_F32, 2048, 8, 1, 64}},
	 .state = FAMILY_STATE_POINTS},
	{.what = "Qwen3.6, int8 rows",
	 .family = "qwen36",
	 .format = "int8-row",
	 .config = QWEN36_CONFIG,
	 .tensor = {{"model.layers.0.mlp.experts.0.qs", "F32", "3072", 12288},
		    {"model.layers.0.mlp.experts.0.merged_weight", "I8", "3145728", 3145728}},
	 .bytes = 3158016,
	 .part = {SAME_AS_GATE(CNRE_I8, 512, 2048, 0, 0), [MODEL_DOWN] = {CNRE_I8, 2048, 512, 0, 0},
		  SAME_SCALES(CNRE_F32, 512, 1, 1, 0), [MODEL_DOWN_SCALE] = {CNRE_F32, 2048, 1, 1, 0}},
	 .state = FAMILY_STATE_POINTS},
	{.what = "Qwen3.8, FP8 with BF16 scales",
	 .family = "qwen38",
	 .format = "fp8-b128",
	 .config = QWEN38_CONFIG,
	 .tensor = {{QWEN38 "0.gate_proj.weight", "F8_E4M3", "640,2560", 1638400},
		    {QWEN38 "0.up_proj.weight", "F8_E4M3", "640,2560", 1638400},
		    {QWEN38 "0.gate_proj.weight_scale_inv", "BF16", "5,20", 200},
		    {QWEN38 "0.up_proj.weight_scale_inv", "BF16", "5,20", 200},
		    {QWEN38 "0.down_proj.weight", "F8_E4M3", "2560,640", 1638400},
		    {QWEN38 "0.down_proj.weight_scale_inv", "F32", "20,5", 400}},
	 .bytes = 3 * 1638400 + 800,
	 .part = {SAME_AS_GATE(CNRE_F8_E4M3, 640, 2560, 0, 0), [MODEL_DOWN] = {CNRE_F8_E4M3, 2560, 640, 0, 0},
		  SAME_SCALES(CNRE_BF16, 5, 20, 128, 128), [MODEL_DOWN_SCALE] = {CNRE_F32, 20, 5, 128, 128}},
	 .state = FAMILY_STATE_POINTS},
	{.what = "Qwen3.8, fused",
	 .family = "qwen38",
	 .format = "bf16",
	 .config = QWEN38_CONFIG,
	 .tensor = {{QWEN38 "gate_up_proj", "BF16", "1,1280,2560", 6553600},
		    {QWEN38 "down_proj", "BF16", "1,2560,640", 3276800}},
	 .bytes = 9830400,
	 .part = {SAME_AS_GATE(CNRE_BF16, 640, 2560, 0, 0), [MODEL_DOWN] = {CNRE_BF16, 2560, 640, 0, 0}},
	 .state = FAMILY_STATE_POINTS},
	{.what = "DeepSeek V4 Flash",
	 .family = "deepseek_v4",
	 .format = "mxfp4",
	 .config = "{\"model_type\":\"deepseek_v4\",\"num_hidden_layers\":1,\"n_routed_experts\":1,"
		   "\"num_experts_per_tok\":1,\"hidden_size\":4096,\"moe_intermediate_size\":2048}",
	 .tensor = {V4_TENSORS("layers.0.ffn.experts.0.", "2048,2048", 4194304, "4096,1024", 4194304, "2048,128",
			       262144, "4096,64", 262144)},
	 .bytes = 13369344,
	 .part = {SAME_AS_GATE(CNRE_I8, 2048, 2048, 0, 0), [MODEL_DOWN] = {CNRE_I8, 4096, 1024, 0, 0},
		  SAME_SCALES(CNRE_F8_E8M0, 2048, 128, 1, 32), [MODEL_DOWN_SCALE] = {CNRE_F8_E8M0, 4096, 64, 1, 32}},
	 .state = FAMILY_STATE_POINTS},
	{.what = "DeepSeek V4.1 Flash",
	 .family = "deepseek_v41",
	 .format = "mxfp4",
	 .config = "{\"model_type\":\"deepseek_v41\",\"text_config\":{\"num_hidden_layers\":1,\"n_routed_experts\":1,"
		   "\"num_experts_per_tok\":1,\"hidden_size\":5120,\"moe_intermediate_size\":2304}}",
	 .tensor = {V4_TENSORS("layers.0.ffn.experts.0.", "2304,2560", 5898240, "5120,1152", 5898240, "2304,160",
			       368640, "5120,72", 368640)},
	 .bytes = 18800640,
	 .part = {SAME_AS_GATE(CNRE_I8, 2304, 2560, 0, 0), [MODEL_DOWN] = {CNRE_I8, 5120, 1152, 0, 0},
		  SAME_SCALES(CNRE_F8_E8M0, 2304, 160, 1, 32), [MODEL_DOWN_SCALE] = {CNRE_F8_E8M0, 5120, 72, 1, 32}},
	 .state = FAMILY_STATE_POINTS},
	{.what = "MiMo-V2.6",
	 .family = "mimo",
	 .format = "mxfp4",
	 .config =
		 "{\"model_type\":\"mimo_v2\",\"num_hidden_layers\":1,\"n_routed_experts\":1,\"num_experts_per_tok\":1,"
		 "\"hidden_size\":4096,\"moe_intermediate_size\":2048}",
	 .tensor = {{GLM "down_proj.weight", "U8", "4096,1024", 4194304},
		    {GLM "down_proj.weight_scale", "U8", "4096,64", 262144},
		    {GLM "gate_proj.weight", "U8", "2048,2048", 4194304},
		    {GLM "gate_proj.weight_scale", "U8", "2048,128", 262144},
		    {GLM "up_proj.weight", "U8", "2048,2048", 4194304},
		    {GLM "up_proj.weight_scale", "U8", "2048,128", 262144}},
	 .bytes = 13369344,
	 .part = {SAME_AS_GATE(CNRE_U8, 2048, 2048, 0, 0), [MODEL_DOWN] = {CNRE_U8, 4096, 1024, 0, 0},
		  SAME_SCALES(CNRE_F8_E8M0, 2048, 128, 1, 32), [MODEL_DOWN_SCALE] = {CNRE_F8_E8M0, 4096, 64, 1, 32}},
	 .state = FAMILY_STATE_POINTS},
};

/* Writes the expert's tensors in this order; the offset of each in the data area into off. */
static void write_expert(const struct expert_case *it, uint64_t off[TENSORS_MAX])
{
	char header[4096], path[256];
	uint64_t at = 0;
	size_t used = 0;

	folder_write(&folder, "config.json", it->config, strlen(it->config));
	(void)unlink(folder_path(&folder, OTHER_FILE, path, sizeof path));
	if (it->other_text != NULL)
		folder_write(&folder, OTHER_FILE, it->other_text, strlen(it->other_text));
	for (size_t i = 0; i < TENSORS_MAX && it->tensor[i].name != NULL; i++) {
		off[i] = at;
		used += (size_t)snprintf(header + used, sizeof header - used,
					 "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
					 i == 0 ? '{' : ',', it->tensor[i].name, it->tensor[i].dtype,
					 it->tensor[i].shape, (unsigned long long)at,
					 (unsigned long long)(at + it->tensor[i].bytes));
		at += it->tensor[i].bytes;
	}
	(void)snprintf(header + used, sizeof header - used, "}");
	folder_write_shard(&folder, "model.safetensors", header, at);
}

static struct model_catalog *opened(const char *what)
{
	struct model_catalog *catalog = NULL;

	message[0] = '\0';
	cr_assert_eq(model_catalog_open(&catalog, folder.path, message), 0, "%s: %s", what, message);
	return catalog;
}

static void expect_part(const char *what, uint32_t role, const struct model_part_shape *part,
			const struct part *expected)
{
	cr_expect_eq(part->bytes > 0, expected->dtype != 0, "%s: role %u", what, role);
	cr_expect_eq((int)part->dtype, expected->dtype, "%s: role %u: dtype %u", what, role, part->dtype);
	cr_expect_eq(part->rows, expected->rows, "%s: role %u: %u rows", what, role, part->rows);
	cr_expect_eq(part->columns, expected->columns, "%s: role %u: %u columns", what, role, part->columns);
	cr_expect_eq(part->block_rows, expected->block_rows, "%s: role %u: blocks of %u rows", what, role,
		     part->block_rows);
	cr_expect_eq(part->block_columns, expected->block_columns, "%s: role %u: blocks of %u columns", what, role,
		     part->block_columns);
}

Test(model_family, an_expert_has_the_bytes_and_parts_that_its_container_has)
{
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const struct expert_case *it = &cases[i];
		uint64_t off[TENSORS_MAX] = {0};
		struct model_catalog *catalog;

		write_expert(it, off);
		catalog = opened(it->what);
		cr_expect_str_eq(catalog->family, it->family, "%s", it->what);
		cr_expect_str_eq(catalog->shape[0].format, it->format, "%s: %s", it->what, catalog->shape[0].format);
		cr_expect_eq(catalog->object_count, 1, "%s", it->what);
		cr_expect_eq(catalog->shape[0].payload_bytes, it->bytes, "%s: %llu bytes", it->what,
			     (unsigned long long)catalog->shape[0].payload_bytes);
		cr_expect_eq(catalog->state, it->state, "%s", it->what);
		for (uint32_t role = 0; role < 6; role++)
			expect_part(it->what, role, &catalog->shape[0].part[role], &it->part[role]);
		(void)model_catalog_close(catalog);
	}
}

/* Each tensor of one matrix begins where its part does, and ends where that ends. */
Test(model_family, parts_lie_where_their_tensors_lie)
{
	static const char *const marks[6][3] = {{"gate_proj.weight", "w1.weight", NULL},
						{"up_proj.weight", "w3.weight", NULL},
						{"down_proj.weight", "w2.weight", NULL},
						{"gate_proj.weight_scale", "w1.scale", "gate_proj.weight.qs"},
						{"up_proj.weight_scale", "w3.scale", "up_proj.weight.qs"},
						{"down_proj.weight_scale", "w2.scale", "down_proj.weight.qs"}};
	uint32_t seen = 0;

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		uint64_t off[TENSORS_MAX] = {0};
		struct model_catalog *catalog;

		write_expert(&cases[i], off);
		catalog = opened(cases[i].what);
		for (size_t t = 0; t < TENSORS_MAX && cases[i].tensor[t].name != NULL; t++)
			for (uint32_t role = 0; role < 6; role++)
				for (size_t k = 0; k < 3 && marks[role][k] != NULL; k++) {
					const char *at = strstr(cases[i].tensor[t].name, marks[role][k]);

					if (at == NULL || (strcmp(at, marks[role][k]) != 0 &&
							   strcmp(at + strlen(marks[role][k]), "_inv") != 0 &&
							   strcmp(at + strlen(marks[role][k]), "_packed") != 0))
						continue;
					cr_expect_eq(catalog->object[0].piece[role].file_off,
						     catalog->shard[0].data_off + off[t], "%s: %s", cases[i].what,
						     cases[i].tensor[t].name);
					cr_expect_eq(catalog->shape[0].part[role].bytes, cases[i].tensor[t].bytes,
						     "%s: %s", cases[i].what, cases[i].tensor[t].name);
					seen++;
				}
		(void)model_catalog_close(catalog);
	}
	cr_expect_geq(seen, 70, "%u", seen);
}

Test(model_family, what_is_merged_or_fused_is_cut_in_order)
{
	uint64_t off[TENSORS_MAX] = {0};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const struct model_piece *piece;
		const struct model_part_shape *part;
		struct model_catalog *catalog;

		if (strstr(cases[i].tensor[0].name, "gate_up") == NULL &&
		    strstr(cases[i].tensor[0].name, "merged") == NULL &&
		    strstr(cases[i].tensor[0].name, "0.qs") == NULL)
			continue;
		write_expert(&cases[i], off);
		catalog = opened(cases[i].what);
		piece = catalog->object[0].piece;
		part = catalog->shape[0].part;
		cr_expect_eq(piece[MODEL_UP].file_off, piece[MODEL_GATE].file_off + part[MODEL_GATE].bytes, "%s",
			     cases[i].what);
		if (part[MODEL_GATE_SCALE].bytes > 0)
			cr_expect_eq(piece[MODEL_UP_SCALE].file_off,
				     piece[MODEL_GATE_SCALE].file_off + part[MODEL_GATE_SCALE].bytes, "%s",
				     cases[i].what);
		if (strstr(cases[i].tensor[0].name, "gate_up") == NULL)
			cr_expect_eq(piece[MODEL_DOWN].file_off, piece[MODEL_UP].file_off + part[MODEL_UP].bytes, "%s",
				     cases[i].what);
		(void)model_catalog_close(catalog);
	}
}

/* ---- every table is whole ---- */

static void expect_layout(const struct family *family, const struct family_layout *layout)
{
	unsigned seen = 0;

	cr_expect(layout->tensor_count >= 1 && layout->tensor_count <= FAMILY_BLOCKS_MAX, "%s", family->name);
	cr_expect_not_null(layout->encodings[0], "%s", family->name);
	for (uint32_t i = 0; i < layout->tensor_count; i++) {
		const struct family_tensor *tensor = &layout->tensor[i];

		cr_expect_lt(tensor->name, family->name_count, "%s", family->name);
		cr_expect(tensor->scale_name == FAMILY_NO_NAME || tensor->scale_name < family->name_count, "%s",
			  family->name);
		for (uint32_t k = 0; k < tensor->block_count; k++)
			seen |= 1u << tensor->block[k].role;
	}
	cr_expect_eq(seen, 7u, "%s: gate, up and down are not all there", family->name);
}

Test(model_family, every_table_names_what_it_needs)
{
	for (size_t i = 0; family_table[i] != NULL; i++) {
		const struct family *family = family_table[i];

		cr_expect_eq(family_find(family->model_types[0]), family, "%s", family->name);
		cr_expect_leq(family->name_count, FAMILY_NAMES_MAX, "%s", family->name);
		cr_expect_leq(family->mtp_rows, FAMILY_MTP_MAX, "%s", family->name);
		cr_expect_leq(family->layout_count, FAMILY_LAYOUTS_MAX, "%s", family->name);
		cr_expect_not_null(family->layers[0].name, "%s", family->name);
		cr_expect_not_null(family->experts[0].name, "%s", family->name);
		cr_expect_not_null(family->top_k[0].name, "%s", family->name);
		cr_expect_not_null(family->hidden[0].name, "%s", family->name);
		cr_expect_not_null(family->intermediate[0].name, "%s", family->name);
		cr_expect_eq(family->capabilities, (uint32_t)(CNRE_CAP_EXPERT_CACHE | CNRE_CAP_DIRECT_IO), "%s",
			     family->name);
		for (uint32_t k = 0; k < family->layout_count; k++)
			expect_layout(family, &family->layouts[k]);
	}
}

Test(model_family, a_model_type_belongs_to_one_family)
{
	char text[512];

	for (size_t i = 0; family_table[i] != NULL; i++)
		for (size_t k = 0; family_table[i]->model_types[k] != NULL; k++)
			cr_expect_eq(family_find(family_table[i]->model_types[k]), family_table[i], "%s",
				     family_table[i]->model_types[k]);
	cr_expect_null(family_find("glm5"));
	cr_expect_null(family_find(""));
	cr_expect(strstr(family_list(text, sizeof text), "mimo_v2") != NULL, "%s", text);
}

/* A name is made of what it was matched to. */
Test(model_family, names_match_what_they_are_made_of_in_every_family)
{
	for (size_t i = 0; family_table[i] != NULL; i++)
		for (uint32_t stem = 0; family_table[i]->stems[stem] != NULL; stem++)
			for (uint32_t name = 0; name < family_table[i]->name_count; name++) {
				struct family_place place = {.stem = stem, .name = name, .number = 77, .expert = 131},
						    back = {0};
				int has_expert = strstr(family_table[i]->names[name], "%E") != NULL;
				char text[256];

				(void)family_make_name(family_table[i], &place, text, sizeof text);
				cr_expect(family_match(family_table[i], text, &back), "%s", text);
				cr_expect_eq(back.stem, stem, "%s", text);
				cr_expect_eq(back.name, name, "%s", text);
				cr_expect_eq(back.number, 77u, "%s", text);
				cr_expect_eq(back.expert, has_expert ? 131u : UINT32_MAX, "%s", text);
				cr_expect_eq(back.is_mtp, strncmp(text, "mtp.", 4) == 0, "%s", text);
			}
}
