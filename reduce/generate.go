package reduce

//go:generate go -C _gen run . -isa avx512 -out ../kernels_avx512_amd64.s -stubs ../kernels_avx512_amd64.go -table ../table_avx512_amd64.go -pkg reduce
//go:generate go -C _gen run . -isa avx2 -out ../kernels_avx2_amd64.s -stubs ../kernels_avx2_amd64.go -table ../table_avx2_amd64.go -pkg reduce
//go:generate go -C _gen run . -isa neon -out ../kernels_neon_arm64.s -stubs ../kernels_neon_arm64.go -table ../table_neon_arm64.go -pkg reduce
