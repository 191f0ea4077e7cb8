// plaid.cu: all device code, one module.
#include "pack.cu"
#include "query.cu"
#include "lists.cu"
#include "scan.cu"
#include "table.cu"
#include "topk.cu"
#include "fine.cu"
#include "nearest.cu"
